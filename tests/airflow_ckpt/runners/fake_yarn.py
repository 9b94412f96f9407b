"""The applications of a YARN cluster, and a ResourceManager that shows them."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.runners.yarn import APPS, YarnRunner
from airflow_ckpt.streams.driver_state import Handle
from tests.airflow_ckpt.runners.fakes import Answer, Request, Server

TOKEN = "0a1b2c"
ID = "application_1700000000000_0001"
HANDLE = Handle("yarn", ID, TOKEN)


def app(number: int = 1, token: str = TOKEN, **fields: Any) -> dict[str, Any]:
    """An application as the ResourceManager of Hadoop 3.4 shows it."""
    return {
        "id": f"application_1700000000000_{number:04}",
        "state": "RUNNING",
        "finalStatus": "UNDEFINED",
        "applicationTags": f"ckpt-{token},spark",
        "trackingUrl": "http://rm:8088/proxy/application_1700000000000_0001/",
        "diagnostics": "",
        "startedTime": 1_700_000_000_000 + number,
        "finishedTime": 0,
        "amContainerLogs": "http://node:8042/node/containerlogs/container_1/spark",
        **fields,
    }


class Yarn:
    """The part of a ResourceManager that we ask."""

    def __init__(self) -> None:
        self.apps: dict[str, dict[str, Any]] = {}
        #: Whether an application ends when it is told to.
        self.obedient = True

    def add(self, *args: Any, **fields: Any) -> None:
        new = app(*args, **fields)
        self.apps[new["id"]] = new

    def answer(self, request: Request) -> Answer:
        if request.method == "POST":
            self.apps[request.body["id"]] = request.body
            return Answer()
        if request.path == APPS:
            # It compares with what it stored, in lower case; without a filter it shows all.
            tag = request.query.get("applicationTags")
            hits = [one for one in self.apps.values() if tag is None or tag in one["applicationTags"].split(",")]
            return Answer(200, {"apps": {"app": hits} if hits else None})
        one = self.apps.get(request.path.removeprefix(f"{APPS}/").removesuffix("/state"))
        if one is None:
            return Answer(404, not_found())
        if request.method == "PUT":
            assert request.path.endswith("/state")
            assert request.body == {"state": "KILLED"}
            if self.obedient:
                one |= {"state": "KILLED", "finalStatus": "KILLED", "diagnostics": "killed by user"}
            return Answer(202, {"state": "RUNNING"})
        return Answer(200, {"app": one})


def not_found() -> dict[str, Any]:
    java = "org.apache.hadoop.yarn.webapp.NotFoundException"
    message = f"java.lang.Exception: app with id: {ID} not found"
    return {"RemoteException": {"exception": "NotFoundException", "message": message, "javaClassName": java}}


def standby(active: str, header: str = "Location") -> Answer:
    """What a standby says. `active` has no query: some versions of Hadoop leave it out."""
    if header == "Refresh":
        return Answer(200, f"This is standby RM. Redirecting to {active}", {"Refresh": f"3; url={active}"})
    return Answer(307, "This is standby RM.", {"Location": active})


def runner(*servers: Server, **options: Any) -> YarnRunner:
    return YarnRunner(",".join(server.url for server in servers), **{"timeout": 5.0, "settle": 0.0, **options})
