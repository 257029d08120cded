"""Object stores of other kinds, as far as creating a file only if it is absent goes.

A stand-in: a proxy in front of the S3 server, which does honour ``If-None-Match: *``. Stores that do not cannot be had here as
programs of their own; what the proxy changes is what they are known to do.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dev.servers import S3
from tests.support.patience import LONGEST_S

KINDS = {
    "honours": "hands everything on",
    "terse": "does not say which condition has failed",
    "ignores": "takes no notice of the condition, as stores before it was known, and clients that do not send it",
    "looks first": "looks whether the object is there and then writes it, with time in between",
    "refuses": "answers that the condition is not implemented",
}


@dataclass(slots=True)
class Proxy:
    """:ivar requests: by method
    :ivar cut: asked with method and path of each request: ``before`` cuts the connection instead of handing the request on, ``after``
        instead of handing the answer back; a number is the status that is answered instead of handing the request on
    """

    storage_options: dict[str, Any]
    requests: Counter[str] = field(default_factory=Counter)
    cut: Callable[[str, str], str | int | None] = lambda method, path: None


class _Handler(BaseHTTPRequestHandler):
    s3: S3
    kind: str
    proxy: Proxy

    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        self.proxy.requests[self.command] += 1
        cut = self.proxy.cut(self.command, self.path)
        self._cut = None if isinstance(cut, int) else cut
        self.close_connection = self.close_connection or cut is not None
        if isinstance(cut, int):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(cut, {}, b"<Error><Code>Refused</Code></Error>")
        elif cut != "before":
            self._forward()

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        condition = next((name for name in headers if name.lower() == "if-none-match"), None)
        if condition is not None and self.kind not in ("honours", "terse"):
            del headers[condition]
            if self.kind == "refuses":
                return self._answer(
                    501, {}, b"<Error><Code>NotImplemented</Code><Message>no conditions</Message></Error>"
                )
            if self.kind == "looks first":
                bare = {name: value for name, value in headers.items() if name.lower() != "content-length"}
                there = self._ask("HEAD", bare, b"")[0] == 200
                time.sleep(0.3)
                if there:
                    return self._answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
        status, headers, body = self._ask(self.command, headers, body)
        if status == 412 and self.kind == "terse":
            body = b"<Error><Code>PreconditionFailed</Code></Error>"
        return self._answer(status, headers, body)

    def _ask(self, method: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.s3.host, self.s3.port, timeout=LONGEST_S)
        try:
            connection.request(method, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if self._cut is not None:
            return
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def other_store(s3: S3, kind: str) -> Iterator[Proxy]:
    """The S3 server as a store of one of the ``KINDS``."""
    assert kind in KINDS
    proxy = Proxy({})

    handler = type("Handler", (_Handler,), {"s3": s3, "kind": kind, "proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        client = {**s3.storage_options["client_kwargs"], "endpoint_url": endpoint}
        # a refusal is not asked for again and again
        again = {"retries": {"max_attempts": 1}}
        proxy.storage_options = {**s3.storage_options, "client_kwargs": client, "config_kwargs": again}
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
