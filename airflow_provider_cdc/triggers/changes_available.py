"""Waits for changes in the triggerer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import TerminalError
from airflow_provider_cdc.core.lifecycle.next_run import RunHold
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.tasks.run_start import RunStart, format_hold
from airflow_provider_cdc.triggers.polling_loop import poll_repeatedly
from airflow_provider_cdc.triggers.shared_source import shared_source
from airflow_provider_cdc.triggers.shared_state import shared_state

if TYPE_CHECKING:
    from airflow_provider_cdc.connector import ChangeCheck
    from airflow_provider_cdc.core.model.connector_offset import Offset
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore
    from airflow_provider_cdc.triggers.shared_source import SharedSource
    from airflow_provider_cdc.triggers.shared_state import SharedState

RECHECK_S = 300.0
"""Seconds that a connector waits after a failure before its sensor reads the definition again."""
RECHECK = "the definition is to be read again"


class ChangesAvailableTrigger(BaseTrigger):
    """Fires when the source's log has gone past a connector's offset.

    Every ``poll_interval`` seconds the offset is read from the state tables, for all that wait in a triggerer by one query, and the end of the log from the
    source, by one question for all connectors that capture it. Both is done in threads.
    The trigger keeps nothing besides its arguments and the state tables, so that any triggerer can take it over at any time.
    Arguments hold ids of connections, never their contents.

    Fires ``{"reason": …}``, or ``{"error": …, "name": …}`` when a person must act. While the connector waits after a failure, the definition of the DAG may be
    corrected, which a trigger does not see: it fires ``{"recheck": true}`` every five minutes.

    :param access: a :class:`~airflow_provider_cdc.services.connectors.connector_handle.ConnectorAccess` as JSON
    :param poll_interval: seconds between two polls
    :param start: a :class:`~airflow_provider_cdc.services.tasks.run_start.RunStart` as JSON
    """

    def __init__(
        self, access: dict[str, Any], poll_interval: float = 10.0, start: dict[str, Any] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.access, self.poll_interval, self.start = access, poll_interval, start

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"access": self.access, "poll_interval": self.poll_interval, "start": self.start}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            reason = await something_to_capture(
                ConnectorAccess.from_document(self.access),
                self.poll_interval,
                log=self.log,
                start=RunStart.from_document(self.start),
            )
        except TerminalError as e:
            yield TriggerEvent({"error": describe_error(e), "name": type(e).__name__})  # type: ignore[no-untyped-call]
        else:
            event = {"recheck": True} if reason == RECHECK else {"reason": reason}
            yield TriggerEvent(event)  # type: ignore[no-untyped-call]


async def something_to_capture(access: ConnectorAccess, poll_interval: float, *, log: Any, start: RunStart) -> str:
    """Wait until there is something to capture, or to apply.

    :return: the reason; :data:`RECHECK` if the connector has waited after a failure for :data:`RECHECK_S`
    :raises TerminalError: a person must act
    """
    async with shared_source(access) as source, shared_state(access.state_conn_id) as state:
        looks = _ChangeLookup(access, source, state, poll_interval / 2, start, log)
        polls = poll_repeatedly(looks.find_reason, poll_interval, whom=f"Connector {access.definition.name}", log=log)
        async with aclosing(polls) as polls:  # type: ignore[type-var]
            async for reason in polls:
                if reason is not None:
                    return reason
    raise AssertionError("polls go on for ever")


class _ChangeLookup:
    """Looks for changes of one connector, by connections that it shares with others."""

    def __init__(
        self,
        access: ConnectorAccess,
        source: SharedSource,
        state: SharedState,
        young_s: float,
        start: RunStart,
        log: Any,
    ) -> None:
        self._access, self._source, self._state, self._young_s = access, source, state, young_s
        self._start, self._log = start, log
        self._properties: dict[str, Any] | None = None
        self._changes: ChangeCheck | None = None
        self._hold: RunHold | None = None
        self._held_since = 0.0
        self._held_with: Any = None

    async def find_reason(self) -> str | None:
        """Return the reason for a run, if there is one.

        :raises CdcError: the source or the state tables cannot be queried, or the definition cannot be used
        """
        properties, changes, problem = await self._use_definition()
        # the offset first: a commit after this read is no reason to wait longer
        found = await self._state.query_connector(
            self._access.definition.name, lambda record, store: self._ask(record, store, changes)
        )
        if isinstance(found, RunHold):
            return self._wait_for_repair(found, properties if problem is None else str(problem))
        if isinstance(found, str):
            return found
        if problem is not None:
            raise problem
        if found is None:
            return None
        assert changes is not None
        assert properties is not None
        end = await self._source.read_log_end(self._access, properties, self._young_s)
        # sets of GTIDs may be long
        return await self._source.run(lambda: changes.explain_log_progress(found, end))

    def _ask(
        self, record: ConnectorRecord | None, store: StateStore, changes: ChangeCheck | None
    ) -> str | RunHold | Offset | None:
        decision = self._start.decide(record, self._access)
        if decision is not None or changes is None:
            return decision
        return changes.in_state(record, store)

    async def _use_definition(self) -> tuple[dict[str, Any] | None, ChangeCheck | None, TerminalError | None]:
        """Return the properties and the check by them; or the error with which the definition cannot be used."""
        try:
            properties = await self._source.resolve_properties(self._access)
            return properties, await self._of(properties), None
        except TerminalError as e:
            return None, None, e

    def _wait_for_repair(self, hold: RunHold, now: Any) -> str | None:
        """Wait after a failure, as long as the Airflow connection stays as it is.

        :param now: properties of the connection, or the error with which they cannot be used
        """
        if self._hold is None:
            self._held_since, self._held_with = time.monotonic(), now
        if hold != self._hold:
            self._log.info("%s", format_hold(self._access.definition.name, hold))
        self._hold = hold
        if now != self._held_with:
            return "the Airflow connection was changed"
        return RECHECK if time.monotonic() - self._held_since >= RECHECK_S else None

    async def _of(self, properties: dict[str, Any]) -> ChangeCheck:
        """By its own definition: whatever is wrong with that is no concern of others that share the source."""
        if self._changes is None or properties != self._properties:
            self._changes = await self._source.run(lambda: self._access.build_change_check(properties))
            self._properties = properties
        return self._changes
