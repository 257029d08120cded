"""moto's server, with one PUT at a time: ``python -m dev.servers.s3_app``, arguments as of ``moto.server``.

moto looks whether an object is there and then writes it, in as many threads as there are requests: of two that create an object only
if it is absent, both may get the answer that they have. S3 does that in one step.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto import server
from moto.moto_server.werkzeug_app import MotoRequestHandler

_run_simple = server.run_simple


class OnePutAtATime:
    """The application, as a server sees it."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app, self._lock = app, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return self._app(environ, start_response)
        if length := environ.get("CONTENT_LENGTH"):  # no one waits for a slow sender
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self._lock:
            return list(self._app(environ, start_response))


class OneContinue(MotoRequestHandler):
    """Asks for a body once. Python's server and werkzeug both do, and the AWS SDK for Java takes the second time for the answer."""

    def handle_expect_100(self) -> bool:
        return True


def _run(host: str, port: int, app: Callable[..., Iterable[bytes]], **options: Any) -> None:
    _run_simple(host, port, OnePutAtATime(app), **{**options, "request_handler": OneContinue})


if __name__ == "__main__":
    server.run_simple = _run
    server.main()
