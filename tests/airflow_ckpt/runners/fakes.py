"""A local HTTP server that speaks for a cluster, and a spark-submit that is a few lines of Python."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from airflow_ckpt.runners.base import Launch


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    status: int = 200
    #: JSON, unless it is text already.
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)


class Server:
    """Answers with what `handle` returns; can stop answering, fail, or refuse."""

    def __init__(self, handle: Callable[[Request], Answer]) -> None:
        self.handle = handle
        self.requests: list[Request] = []
        #: The answer to every request, instead of what `handle` returns.
        self.instead: Answer | None = None
        #: Set while it answers; cleared, it holds every request.
        self.answers = threading.Event()
        self.answers.set()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.answers.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                body = json.loads(text) if text else None
                request = Request(self.command, parts.path, query, body, dict(self.headers))
                server.requests.append(request)
                server.answers.wait(30)
                answer = server.instead or server.handle(request)
                content = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
                try:
                    self.send_response(answer.status)
                    kind = "text/plain" if isinstance(answer.body, str) else "application/json"
                    for name, value in {"Content-Type": kind, **answer.headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content.encode())))
                    self.end_headers()
                    self.wfile.write(content.encode())
                except ConnectionError:
                    return  # the client has closed the connection

            do_GET = do_PUT = do_POST = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler


@contextmanager
def serving(handle: Callable[[Request], Answer]) -> Iterator[Server]:
    server = Server(handle)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def submit(folder: Path, code: str, **env: str) -> Launch:
    """A spark-submit that runs this Python code. `post(url, value)` adds a driver to the fake cluster."""
    secret = folder / "secret.properties"
    secret.write_text("password")
    prelude = (
        "import json, os, pathlib, sys, time, urllib.request\n"
        "def post(url, value):\n"
        "    request = urllib.request.Request(url, json.dumps(value).encode(), method='POST')\n"
        "    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()\n"
    )
    return Launch((sys.executable, "-I", "-c", prelude + code), env, folder, (str(secret),))
