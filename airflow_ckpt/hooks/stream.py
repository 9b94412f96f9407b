"""Connects a stream with Airflow: its connections, its configuration, and the name of the task that acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.locations import open_files
from airflow_ckpt.exceptions import BadConnection, NotInstalled, UnknownConnection
from airflow_ckpt.hooks.connections import Connections, from_airflow, names_of
from airflow_ckpt.hooks.launch import make_launch
from airflow_ckpt.hooks.settings import Settings, read_settings
from airflow_ckpt.runners.base import Runner
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.protocol.settings.secret_names import is_secret


class StreamHook(BaseHook):
    """Gives operators, sensors and triggers the control of a stream."""

    def __init__(self, stream: Stream, by: str = "airflow") -> None:
        super().__init__()
        self.stream, self.by = stream, by

    def get_conn(self) -> StreamControl:
        """The stream's control, with the present values of its connections."""
        found = {}
        for name in names_of(self.stream):
            try:
                found[name] = self.get_connection(name)
            except AirflowNotFoundException as e:
                raise _unknown_connection(name, self.stream) from e
        return self.control(found)

    async def aget_conn(self) -> StreamControl:
        """The same inside a triggerer, without blocking its event loop."""
        found = {}
        for name in names_of(self.stream):
            try:
                found[name] = await self.aget_connection(name)
            except AirflowNotFoundException as e:
                raise _unknown_connection(name, self.stream) from e
        return self.control(found)

    def control(self, found: Mapping[str, Any]) -> StreamControl:
        connections = from_airflow(self.stream, found)
        _mask_secrets(connections)
        settings = read_settings()
        runner = make_runner(self.stream, connections, settings)
        access = StreamAccess(self.stream, self._files(connections), client_settings(connections.kafka), runner)
        return StreamControl(
            access, lambda request: make_launch(self.stream, request, connections, runner, settings), self.by
        )

    def _files(self, connections: Connections) -> FsspecFiles:
        options = {**self.stream.storage_options, **connections.storage}
        return open_files(self.stream.checkpoint, self.stream.webhdfs, options)


def make_runner(stream: Stream, connections: Connections, settings: Settings) -> Runner:
    """The runner that the stream declares, or else the runner for its Spark connection."""
    target = connections.spark
    kind = target.runner if stream.runner == "auto" else stream.runner
    if kind == "yarn":
        return _yarn(stream, connections)
    if kind == "kubernetes":
        from airflow_ckpt.runners.kubernetes import KubernetesRunner

        extra = target.extra
        return KubernetesRunner.connect(
            namespace=str(extra.get("namespace") or "default"),
            in_cluster=extra.get("in_cluster"),
            config_file=extra.get("kube_config"),
            context=extra.get("kube_context"),
        )
    from airflow_ckpt.runners.process import ProcessRunner

    return ProcessRunner(settings.work_folder, stream.checkpoint)


def _yarn(stream: Stream, connections: Connections) -> Runner:
    from airflow_ckpt.runners.yarn import YarnRunner

    extra = connections.spark.extra
    address = str(extra.get("yarn_resourcemanager_webapp_address") or "")
    if not address:
        raise BadConnection(
            f"The connection {stream.spark_conn_id!r} lacks yarn_resourcemanager_webapp_address in its extra field, such as "
            "http://resourcemanager:8088: without it the driver's state is unknown."
        )
    auth = None
    if extra.get("keytab") and extra.get("principal"):
        try:
            from requests_kerberos import HTTPKerberosAuth
        except ImportError as e:
            raise NotInstalled("A Kerberos connection needs `pip install 'airflow-ckpt[kerberos]'`.") from e
        auth = HTTPKerberosAuth()
    return YarnRunner(address, auth=auth)


def _unknown_connection(name: str, stream: Stream) -> UnknownConnection:
    return UnknownConnection(
        f"The connection {name!r} of stream {stream.name!r} was not found. Add it under Admin > "
        f"Connections, or with `airflow connections add {name} ...`."
    )


def _mask_secrets(connections: Connections) -> None:
    """Mask the secrets of the connections in every log from now on."""
    from airflow.providers.common.compat.sdk import mask_secret

    for settings in (connections.kafka, connections.storage, connections.spark.extra):
        for name, value in settings.items():
            if value and is_secret(name):
                mask_secret(str(value))
