"""Calls of the API server to sources, change logs and targets, with a limit on their number and on the time to wait for an answer.

A separate thread makes each call, so that a system without an answer holds a thread that serves Airflow's requests no longer than that time. No system, and no
user, gets all places.

>>> call_source_in_time(15, "shop_mariadb", lambda: gap_of(access), name="The source of shop") is None
True
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_provider_cdc.core.errors import NotGranted, SourceBusy, SourceUnavailable
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.hooks.airflow_compat import conf

_T = TypeVar("_T")
QUERY_OPTION = "query_sources"
"""Option of ``[cdc]`` in Airflow's configuration: the sources that the API server may query."""
NOTHING_CHANGED = "Nothing was changed."
_HUNG_S = 600.0
"""Seconds after which a call counts for its system only: one that never ends takes no place from other systems."""
_caller: contextvars.ContextVar[str | None] = contextvars.ContextVar("cdc_caller", default=None)


def set_caller(user: str) -> None:
    """Set the user whose calls the present context makes, for the limit of each user."""
    _caller.set(user)


@dataclass(eq=False, slots=True)
class _Call:
    system: str
    caller: str | None
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class CallPlaces:
    """Places for calls of one kind, in one process.

    :param kind: name of the kind of system, for errors
    :param most: calls at once
    :param most_of_system: to one system
    :param most_of_caller: by one user; calls without one have no such limit
    """

    kind: str
    most: int
    most_of_system: int
    most_of_caller: int
    _calls: list[_Call] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acquire(self, system: str) -> _Call:
        """Acquire a place; :meth:`release` returns it.

        :raises SourceBusy: too many calls wait for answers already
        """
        call = _Call(system, _caller.get())
        with self._lock:
            recent = [other for other in self._calls if call.began - other.began < _HUNG_S]
            if sum(other.system == system for other in self._calls) >= self.most_of_system:
                raise self._build_error(f"{self.most_of_system} checks of this {self.kind}")
            if call.caller is not None and sum(c.caller == call.caller for c in recent) >= self.most_of_caller:
                raise self._build_error(f"{self.most_of_caller} of your checks of {self.kind}s")
            if len(recent) >= self.most:
                raise self._build_error(f"{self.most} checks of {self.kind}s")
            self._calls.append(call)
        return call

    def release(self, call: _Call) -> None:
        """Return a place."""
        with self._lock:
            self._calls.remove(call)

    def _build_error(self, which: str) -> SourceBusy:
        return SourceBusy(
            f"{which} are already waiting for answers.",
            safe="Nothing was queried or changed.",
            remedy=f"try again in a minute; if the error persists, a {self.kind} does not answer",
        )


_sources = CallPlaces("source", most=8, most_of_system=3, most_of_caller=4)
_logs = CallPlaces("change log", most=12, most_of_system=4, most_of_caller=6)
"""Places for change logs are separate, and more: a page reads one whenever it refreshes."""
_targets = CallPlaces("target", most=8, most_of_system=3, most_of_caller=4)


def _check_allowed(name: str, *, captured: bool) -> None:
    """Check that the API server may query a source.

    :param captured: a connector has captured from it: its tasks log in there anyway
    :raises NotGranted: Airflow's configuration does not allow it
    """
    allowed = conf.get("cdc", QUERY_OPTION, fallback="connectors").strip().lower()
    if allowed == "all" or (captured and allowed == "connectors"):
        return
    if (
        not captured
        and allowed != "none"
        and conf.get("core", "test_connection", fallback="").strip().lower() == "enabled"
    ):
        return
    wider = "connectors or all" if captured else "all"
    airflows = (
        ""
        if captured or allowed == "none"
        else ", or AIRFLOW__CORE__TEST_CONNECTION=Enabled, which also has Airflow test connections"
    )
    raise NotGranted(
        f"{name} cannot be queried from a page: Airflow's configuration does not allow it.",
        where=f"[cdc] {QUERY_OPTION}={allowed} of Airflow's configuration",
        safe="Nothing was queried or changed.",
        remedy=f"an administrator of this Airflow sets AIRFLOW__CDC__{QUERY_OPTION.upper()}={wider}{airflows}",
    )


def call_source_in_time(
    seconds: float, conn_id: str, query: Callable[[], _T], *, name: str, captured: bool = True
) -> _T:
    """Return the answer of a source, or raise an error when there is none in time.

    The call itself ends by the timeouts of its connection.

    :param conn_id: connection to the source
    :param name: of the source, for errors
    :param captured: a connector has captured from it; otherwise the user has chosen the connection
    :raises NotGranted: Airflow's configuration does not allow pages to query it
    :raises SourceUnavailable: there was no answer in time
    :raises SourceBusy: too many calls wait for answers already
    """
    _check_allowed(name, captured=captured)
    remedy = f"check that the database is up and can be reached from Airflow's API server; `{name_cdc_command('check')}` waits longer"
    return _call(_sources, conn_id, seconds, query, name, NOTHING_CHANGED, remedy)


def call_log_in_time(seconds: float, connector: str, query: Callable[[], _T], *, safe: str = NOTHING_CHANGED) -> _T:
    """Return the answer of the change log of a connector, as :func:`call_source_in_time` for sources.

    :param safe: the state if no answer came
    :raises SourceUnavailable: there was no answer in time
    :raises SourceBusy: too many calls wait for answers already
    """
    remedy = "check that its storage is up and can be reached from Airflow's API server"
    return _call(_logs, connector, seconds, query, f"The change log of {connector}", safe, remedy)


def call_targets_in_time(seconds: float, connector: str, query: Callable[[], _T]) -> _T:
    """Return the answer of the targets of a connector, as :func:`call_source_in_time` for sources.

    :raises SourceUnavailable: there was no answer in time
    :raises SourceBusy: too many calls wait for answers already
    """
    remedy = "check that its tables can be reached from Airflow's API server"
    return _call(_targets, connector, seconds, query, f"A target of {connector}", NOTHING_CHANGED, remedy)


def _call(
    places: CallPlaces, system: str, seconds: float, query: Callable[[], _T], name: str, safe: str, remedy: str
) -> _T:
    call = places.acquire(system)
    answer: list[Any] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(query())
        except BaseException as e:
            failed.append(e)
        finally:
            places.release(call)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(ask,), name="cdc-look", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the process may have no more threads; its place is free again
        places.release(call)
        raise
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not answer:
        raise SourceUnavailable(f"{name} has not answered within {round(seconds, 1):g} s.", safe=safe, remedy=remedy)
    return answer[0]  # type: ignore[no-any-return]


__all__ = [
    "QUERY_OPTION",
    "CallPlaces",
    "call_log_in_time",
    "call_source_in_time",
    "call_targets_in_time",
    "set_caller",
]
