"""The link from a task to the Spark UI of the run that it started or watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator


class SparkUiLink(BaseOperatorLink):
    """Opens the driver's Spark UI; there is no link until the driver runs."""

    name = "Spark UI"
    xcom_key = "spark_ui"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        # Airflow calls this at the end of each worker phase and stores the result, which is the value that was pushed to XCom.
        url = str(XCom.get_value(key=self.xcom_key, ti_key=ti_key) or "")
        # Other users may be able to write the run record: only a web address becomes a link, never a script.
        return url if url.startswith(("http://", "https://")) else ""
