"""Limits the size of a request's body. Reading JSON takes processor time, in which the API server does nothing else."""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 1 << 20
"""Bytes of a body. The largest that pages send has the names of thousands of tables."""


class BodyLimit:
    """Answers 413 to a request with a larger body, before it is read as JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        body, complete = bytearray(), False
        while not complete:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client is gone
            body += message.get("body", b"")
            complete = not message.get("more_body", False)
            if len(body) > MOST_BYTES:
                await _send_refusal(send)
                return
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)


async def _send_refusal(send: Send) -> None:
    text = json.dumps({"detail": f"The body is larger than {MOST_BYTES:,} bytes.", "error": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text})


__all__ = ["MOST_BYTES", "BodyLimit"]
