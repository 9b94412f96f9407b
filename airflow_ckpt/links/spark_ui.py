"""The link from a task to the Spark UI of the run that it started or watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator


class SparkUiLink(BaseOperatorLink):
    """Opens the driver's Spark UI; no link until the driver runs."""

    name = "Spark UI"
    xcom_key = "spark_ui"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        # Airflow calls this at the end of each worker phase and stores what it returns: the value that was pushed.
        url = str(XCom.get_value(key=self.xcom_key, ti_key=ti_key) or "")
        # The run record can be written by other users: only a web address becomes a link, never a script.
        return url if url.startswith(("http://", "https://")) else ""
