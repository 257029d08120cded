"""Connections and variables that Airflow calls missing because nothing answered it: they are tried again, not reported as missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.bases.secrets_backend import BaseSecretsBackend
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ConnectionResult, ErrorResponse
from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

from airflow_provider_cdc.core.errors import CdcError, ConfigError, ConnectionUnavailable, StateError, StateUnavailable
from airflow_provider_cdc.hooks.airflow_compat import VariableStore
from airflow_provider_cdc.hooks.connection_lookup import find_connection
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.hooks.state import CdcStateHook

DOWN = ErrorResponse(
    error=ErrorType.API_SERVER_ERROR, detail={"status_code": None, "message": "All connection attempts failed"}
)
"""The reply of a supervisor whose API server does not listen, as seen with Airflow 3.3.2."""
MISSING = ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND, detail={"conn_id": "shop"})


class Supervisor:
    """A stand-in for the supervisor of a task: it answers with the given replies, and repeats the last one."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)

    def send(self, _: Any) -> Any:
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


class BrokenVault(BaseSecretsBackend):
    """A secrets backend that cannot log in."""

    def get_conn_value(self, conn_id: str, **_: Any) -> str | None:
        raise OSError(f"login root:secret of {conn_id} is wrong")

    def get_variable(self, key: str, **_: Any) -> str | None:
        raise OSError(f"login root:secret of {key} is wrong")


@pytest.fixture
def supervise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def replace(*replies: Any) -> None:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(*replies), raising=False)

    return replace


LOOKUPS: list[tuple[Callable[[], Any], type[CdcError]]] = [
    (lambda: find_connection("shop", "to the source", "conn_id"), ConfigError),
    (lambda: CdcSourceHook("shop").resolve_properties(), ConfigError),
    (lambda: CdcStateHook("shop").resolve_address(), StateError),
]


@pytest.mark.parametrize(("look_up", "missing"), LOOKUPS, ids=["any", "source", "state"])
@pytest.mark.parametrize(
    "reply", [DOWN, ErrorResponse(error=ErrorType.GENERIC_ERROR), OSError("the pipe is closed")], ids=str
)
def test_a_connection_that_nothing_could_look_up_is_tried_again(
    supervise: Callable[..., None], look_up: Callable[[], Any], missing: type[CdcError], reply: Any
) -> None:
    supervise(reply)
    with pytest.raises(ConnectionUnavailable, match="could not look up connection shop"):
        look_up()
    supervise(MISSING)
    with pytest.raises(missing, match=r"Connection shop.* does not exist"):
        look_up()


def test_a_connection_that_appears_at_the_second_request_is_tried_again(supervise: Callable[..., None]) -> None:
    others = dict.fromkeys(("host", "schema", "login", "password", "port", "extra"))
    supervise(DOWN, ConnectionResult(conn_id="shop", conn_type="generic", **others))
    with pytest.raises(ConnectionUnavailable, match="second request"):
        find_connection("shop", "to the source", "conn_id")


def test_a_secrets_backend_that_fails_is_named_without_its_text(
    monkeypatch: pytest.MonkeyPatch, supervise: Callable[..., None]
) -> None:
    supervise(MISSING)
    backends = [BrokenVault(), *ensure_secrets_backend_loaded()]
    monkeypatch.setattr("airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded", lambda: backends)
    with pytest.raises(ConnectionUnavailable, match="BrokenVault failed with OSError") as caught:
        find_connection("shop", "to the source", "conn_id")
    assert "secret of" not in str(caught.value)


def test_a_cursor_that_nothing_could_look_up_is_no_new_watcher(supervise: Callable[..., None]) -> None:
    store = VariableStore("inventory.orders")
    supervise(DOWN)
    with pytest.raises(StateUnavailable, match="could not look up variable cursor"):
        asyncio.run(store.aget("cursor"))
    supervise(ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND))
    assert asyncio.run(store.aget("cursor")) is None
