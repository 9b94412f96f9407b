"""Takes the pictures of the documentation from a running Airflow.

Run it from the repository: .venv/bin/python -m tests.browser.screenshots URL USER PASSWORD FOLDER.

What they show is there after `airflow-ckpt demo --keep`: the newest good run of ip_count_exactly_once that was resumed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_ckpt.local.airflow.rest_api import AirflowApi
from ckpt_stream.protocol.settings.setting import Group
from tests.browser.ui import AirflowUi, TriggerForm, open_browser

DAG = "ip_count_exactly_once"
TAG = "airflow-ckpt"
#: Choices that Airflow's UI keeps in the browser.
VIEW, GRAPH_DIRECTION, LIST = "default_dag_view", f"direction-{DAG}", "dags_list_display"


def resumed_run(api: AirflowApi) -> str:
    """The newest run that failed on its way, was resumed, and ended well."""
    runs = api("GET", f"/dags/{DAG}/dagRuns", params={"order_by": "-run_after", "state": "success"})["dag_runs"]
    for run in runs:
        if api.task_states(DAG, run["dag_run_id"]).get("verify_again") == "success":
            return str(run["dag_run_id"])
    raise SystemExit(f"no run of {DAG} was resumed and verified: run `airflow-ckpt demo --keep` first")


def choose(ui: AirflowUi, **choices: str) -> None:
    """Set choices of a user: the next page that is opened follows them."""
    for name, value in choices.items():
        ui.chrome.execute_script("localStorage.setItem(arguments[0], JSON.stringify(arguments[1]))", name, value)


def take(ui: AirflowUi, file: Path) -> None:
    """Save a picture of the page when nothing on it moves any more."""
    ui.point_nowhere()
    pictures = [b""]

    def is_settled() -> bool:
        pictures.append(ui.chrome.get_screenshot_as_png())
        return pictures[-1] == pictures[-2]

    ui.wait_for(is_settled, "a page that does not move")
    file.write_bytes(pictures[-1])
    print(f"{file}  {len(pictures[-1]) // 1024} kB")


def take_form(ui: AirflowUi, file: Path, form: TriggerForm, *sections: str) -> None:
    for section in sections:
        form.open_section(section)
    take(ui, file)


def main(url: str, username: str, password: str, folder: str) -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    run = resumed_run(AirflowApi(url, username, password))
    with open_browser(url) as ui:
        ui.log_in(username, password)

        choose(ui, **{LIST: "table"})
        ui.open_dags(TAG)
        take(ui, out / "dags.png")

        of_stream = (group.value for group in (Group.STREAM, Group.SOURCE, Group.SINK))
        take_form(ui, out / "trigger-form-stream.png", ui.open_trigger_form(DAG), *of_stream)
        take_form(ui, out / "trigger-form-checks.png", ui.open_trigger_form(DAG), "Checks")

        choose(ui, **{VIEW: "graph", GRAPH_DIRECTION: "DOWN"})
        ui.open_run(DAG, run)
        ui.see(".react-flow__node")
        take(ui, out / "run-graph.png")
        choose(ui, **{VIEW: "grid"})

        ui.open_task(DAG, run, "submit", "details")
        ui.extra_link("Spark UI")
        take(ui, out / "submit-spark-ui-link.png")

        ui.open_task(DAG, run, "verify_again", "xcom")
        ui.xcom("verdict")
        take(ui, out / "verdict-xcom.png")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
