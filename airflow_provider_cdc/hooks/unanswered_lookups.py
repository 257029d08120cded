"""Finds out why Airflow did not find a connection or a variable.

Airflow reports both as missing also where nothing could be looked up: the API server is down, the database of Airflow is, or a secrets
backend has failed. A missing connection is for a person, but one that could not be looked up may be there at the next try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def explain_unanswered_connection(conn_id: str) -> str | None:
    """Return why a connection that Airflow has reported as missing could not be looked up; ``None``: it is missing.

    >>> explain_unanswered_connection("warehouse")
    'the API server did not answer: All connection attempts failed'
    """
    from airflow.sdk.execution_time.comms import GetConnection

    return _explain(GetConnection(conn_id=conn_id), lambda backend: backend.get_connection(conn_id=conn_id))


def explain_unanswered_variable(name: str) -> str | None:
    """Return why a variable that Airflow has reported as missing could not be looked up; ``None``: it is missing."""
    from airflow.sdk.execution_time.comms import GetVariable

    return _explain(GetVariable(key=name), lambda backend: backend.get_variable(key=name))


def _explain(request: Any, look_up: Callable[[Any], Any]) -> str | None:
    """Ask all secrets backends again, as Airflow does, but keep their failures."""
    from airflow.sdk.execution_time.secrets.execution_api import ExecutionAPISecretsBackend
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    for backend in ensure_secrets_backend_loaded():
        try:
            found = _ask_api_server(request) if isinstance(backend, ExecutionAPISecretsBackend) else look_up(backend)
        except Exception as e:
            # the text of a foreign backend may hold its own login
            return str(e) if isinstance(e, _NoAnswer) else f"{type(backend).__name__} failed with {type(e).__name__}"
        if found:
            return "it was found at a second request only"
    return None


class _NoAnswer(Exception):
    """The API server has answered neither with the value nor that it is missing."""


def _ask_api_server(request: Any) -> bool:
    """Check whether the API server has the value.

    :raises _NoAnswer: it did not answer, or with an error
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse

    reply = task_runner.SUPERVISOR_COMMS.send(request)
    if not isinstance(reply, ErrorResponse):
        return reply is not None
    if reply.error.value in ("CONNECTION_NOT_FOUND", "VARIABLE_NOT_FOUND"):
        return False
    raise _NoAnswer(f"the API server did not answer: {(reply.detail or {}).get('message', reply.error.value)}")


__all__ = ["explain_unanswered_connection", "explain_unanswered_variable"]
