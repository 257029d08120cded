"""Waits for changes in the triggerer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import TerminalError
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.triggers.polling_loop import poll_repeatedly
from airflow_provider_cdc.triggers.shared_source import shared_source
from airflow_provider_cdc.triggers.shared_state import shared_state

if TYPE_CHECKING:
    from airflow_provider_cdc.connector import ChangeCheck
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.triggers.shared_source import SharedSource
    from airflow_provider_cdc.triggers.shared_state import SharedState


class ChangesAvailableTrigger(BaseTrigger):
    """Fires when the source's log has gone past a connector's offset.

    Every ``poll_interval`` seconds the offset is read from the state tables, for all that wait in a triggerer by one query, and the end of the log from the
    source, by one question for all connectors that capture it. Both is done in threads.
    The trigger keeps nothing besides its arguments and the state tables, so that any triggerer can take it over at any time.
    Arguments hold ids of connections, never their contents.

    Fires ``{"reason": …}``, or ``{"error": …}`` when a person must act.

    :param access: a :class:`~airflow_provider_cdc.services.connectors.connector_handle.ConnectorAccess` as JSON
    :param poll_interval: seconds between two polls
    """

    def __init__(self, access: dict[str, Any], poll_interval: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.access, self.poll_interval = access, poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"access": self.access, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            reason = await something_to_capture(
                ConnectorAccess.from_document(self.access), self.poll_interval, log=self.log
            )
        except TerminalError as e:
            yield TriggerEvent({"error": describe_error(e)})  # type: ignore[no-untyped-call]
        else:
            yield TriggerEvent({"reason": reason})  # type: ignore[no-untyped-call]


async def something_to_capture(
    access: ConnectorAccess, poll_interval: float, *, log: Any, after_failure_s: float = 0.0
) -> str:
    """Wait until there is something to capture.

    :param after_failure_s: if the last run has failed, wait for so long after it
    :return: the reason
    :raises TerminalError: a person must act
    """
    async with shared_source(access) as source, shared_state(access.state_conn_id) as state:
        looks = _ChangeLookup(access, source, state, poll_interval / 2, after_failure_s)
        polls = poll_repeatedly(looks.find_reason, poll_interval, whom=f"Connector {access.definition.name}", log=log)
        async with aclosing(polls) as polls:  # type: ignore[type-var]
            async for reason in polls:
                if reason is not None:
                    return reason
    raise AssertionError("polls go on for ever")


class _ChangeLookup:
    """Looks for changes of one connector, by connections that it shares with others."""

    def __init__(
        self, access: ConnectorAccess, source: SharedSource, state: SharedState, young_s: float, after_failure_s: float
    ) -> None:
        self._access, self._source, self._state, self._young_s = access, source, state, young_s
        self._after_failure = timedelta(seconds=after_failure_s)
        self._properties: dict[str, Any] | None = None
        self._changes: ChangeCheck | None = None

    async def find_reason(self) -> str | None:
        """Return the reason for a capture, if there is one.

        :raises CdcError: the source or the state tables cannot be queried, or the definition cannot be used
        """
        properties = await self._source.resolve_properties(self._access)
        changes = await self._of(properties)
        # the offset first: a commit after this read is no reason to wait longer
        reason_or_offset = await self._state.query_connector(
            self._access.definition.name,
            lambda record, store: None if self._failed(record) else changes.in_state(record, store),
        )
        if reason_or_offset is None or isinstance(reason_or_offset, str):
            return reason_or_offset
        end = await self._source.read_log_end(self._access, properties, self._young_s)
        # sets of GTIDs may be long
        return await self._source.run(lambda: changes.explain_log_progress(reason_or_offset, end))

    def _failed(self, record: ConnectorRecord | None) -> bool:
        """Check whether the last run has failed a short time ago."""
        failed_at = None if record is None else record.failed_at
        return failed_at is not None and datetime.now(UTC) - failed_at < self._after_failure

    async def _of(self, properties: dict[str, Any]) -> ChangeCheck:
        """By its own definition: whatever is wrong with that is no concern of others that share the source."""
        if self._changes is None or properties != self._properties:
            self._changes = await self._source.run(lambda: self._access.build_change_check(properties))
            self._properties = properties
        return self._changes
