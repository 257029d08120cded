"""Signals in the state tables. Channels and people insert them; the connector's run reads them in the order of their numbers."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal, SignalState
from airflow_provider_cdc.core.signals.signal_intake import STORED_CHARACTERS, shorten_data
from airflow_provider_cdc.core.signals.signal_request_parser import LARGEST
from airflow_provider_cdc.core.spi.state_records import SignalCounts, SignalProgress, SignalRecord
from airflow_provider_cdc.state.desired_state import lock_control_row
from airflow_provider_cdc.state.models import OffsetRow, SignalRow
from airflow_provider_cdc.state.state_database import StateDatabase, to_storable_text

_PLAIN = re.compile(r"[a-z0-9:/._=-]{1,200}")
SENT_ONCE = "once:"
"""Beginning of the origin of a signal that was sent directly, and so cannot be found again."""


class Signals:
    """Records signals and their states."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def send(self, connector: str, signal: SentSignal, refusal: str | None = None) -> int:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.send`."""
        now = datetime.now(UTC)
        origin = origin_key(
            signal.origin or f"{SENT_ONCE}{uuid.uuid4()}"
        )  # an attempt whose reply was lost is found again
        values = {
            "connector": connector,
            "signal_id": to_storable_text(signal.id, 500),
            "type": to_storable_text(signal.type, 250),
            # data larger than LARGEST is refused anyway, and one more character is enough to see it
            "data": None if signal.data is None else to_storable_text(signal.data, LARGEST + 1),
            "channel": to_storable_text(signal.channel, 50),
            "origin": origin,
            "sent_by": None if signal.by is None else to_storable_text(signal.by, 250),
            "state": (SignalState.RECEIVED if refusal is None else SignalState.REFUSED).value,
            "message": "" if refusal is None else to_storable_text(refusal, 1_000_000),
            "received_at": now,
            "ended_at": None if refusal is None else now,
        }
        same_origin = sa.select(SignalRow.id).where(SignalRow.connector == connector, SignalRow.origin == origin)
        for attempt in self._database.iterate_attempts("send a signal"):
            with attempt, self._database.open_transaction() as c:
                # One sender after the other: otherwise a number could become visible after a higher one was read, and
                # a run that asks for numbers above the last one would never see that signal.
                lock_control_row(c, connector)
                number_before = c.scalar(same_origin)
                number = self._insert(c, values) if number_before is None else number_before
        return number

    def list_later_signals(self, connector: str, after: int) -> list[Signal]:
        r = SignalRow
        statement = sa.select(r.id, r.signal_id, r.type, r.data, r.channel)
        refused = SignalState.REFUSED.value  # beyond a limit: it was never received
        statement = statement.where(r.connector == connector, r.id > after, r.state != refused).order_by(r.id)
        for attempt in self._database.iterate_attempts("list signals"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement).all()
        return [Signal(*row) for row in rows]

    def count_signals(self, connector: str, channel: str, since: datetime) -> SignalCounts:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.count_signals`."""
        r = SignalRow
        is_recent = r.received_at > since
        is_open = r.state.in_([state.value for state in SignalState if not state.is_final])
        columns = [
            sa.case((is_recent, 1), else_=0),
            sa.case((is_recent, sa.func.char_length(sa.func.coalesce(r.data, ""))), else_=0),
            sa.case((is_open, 1), else_=0),
        ]
        statement = sa.select(*(sa.func.coalesce(sa.func.sum(column), 0) for column in columns))
        statement = statement.where(
            r.connector == connector, r.channel == to_storable_text(channel, 50), is_recent | is_open
        )
        for attempt in self._database.iterate_attempts("count signals"):
            with attempt, self._database.engine.connect() as c:
                recent, characters, waiting = c.execute(statement).one()
        return SignalCounts(int(recent), int(characters), int(waiting))

    def set_signal_state(
        self, connector: str, number: int, state: SignalState, message: str = "", progress: dict[str, Any] | None = None
    ) -> None:
        for attempt in self._database.iterate_attempts("record the state of a signal"):
            with attempt, self._database.open_transaction() as c:
                record_signal_state(c, connector, number, state, message, progress)

    def reject_signals(self, connector: str, *, after: int, upto: int, sent_after: datetime, message: str) -> list[int]:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.refuse_signals`."""
        r = SignalRow
        selection = sa.select(r.id).where(
            r.connector == connector, r.id > after, r.id <= upto, r.received_at > sent_after
        )
        selection = selection.where(r.state == SignalState.RECEIVED.value).order_by(r.id)
        return self._fail(connector, selection, message)

    def fail_lost(self, connector: str, *, upto: int, requests: Collection[int], message: str) -> list[int]:
        """See :meth:`airflow_provider_cdc.core.spi.store_interfaces.StateStore.fail_lost_signals`."""
        r = SignalRow
        selection = sa.select(r.id).where(r.connector == connector, r.id <= upto, r.id.not_in(sorted(requests)))
        selection = selection.where(r.state.in_([state.value for state in SignalState if not state.is_final])).order_by(
            r.id
        )
        return self._fail(connector, selection, message)

    def _fail(self, connector: str, selection: sa.Select[int], message: str) -> list[int]:
        for attempt in self._database.iterate_attempts("fail signals"):
            with attempt, self._database.open_transaction() as c:
                numbers = [int(number) for number in c.scalars(selection)]
                for number in numbers:
                    record_signal_state(c, connector, number, SignalState.FAILED, message)
        return numbers

    def list_newest(
        self, connector: str, limit: int = 50, *, number: int | None = None, under_way: bool = False
    ) -> list[SignalRecord]:
        """Signals with their states, newest first.

        :param number: only this one, with all of its data; otherwise lists show the first 2,000 characters
        :param under_way: only those whose state is not final
        """
        r = SignalRow
        data = r.data if number is not None else sa.func.substr(r.data, 1, STORED_CHARACTERS)
        statement = sa.select(
            r.id, r.signal_id, r.type, data, r.channel, r.sent_by, r.state, r.message, r.progress, r.received_at,
            r.running_at, r.ended_at,
        ).where(r.connector == connector)  # fmt: skip
        if number is not None:
            statement = statement.where(r.id == number)
        if under_way:
            statement = statement.where(r.state.in_([f.value for f in SignalState if not f.is_final]))
        for attempt in self._database.iterate_attempts("list signals"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement.order_by(r.id.desc()).limit(limit)).all()
        return [
            SignalRecord(
                number, id_, type_, text, channel, sent_by, SignalState(state), message, cast("SignalProgress", progress or {}),
                received_at, running_at, ended_at,
            )
            for number, id_, type_, text, channel, sent_by, state, message, progress, received_at, running_at, ended_at in rows
        ]  # fmt: skip

    def list_open_signals(self) -> dict[str, list[SignalRecord]]:
        """Connector → its signals that have not ended, newest first, without their data; by one query."""
        r = SignalRow
        statement = sa.select(
            r.connector, r.id, r.signal_id, r.type, r.channel, r.sent_by, r.state, r.message, r.progress, r.received_at, r.running_at,
        ).where(r.state.in_([f.value for f in SignalState if not f.is_final]))  # fmt: skip
        for attempt in self._database.iterate_attempts("list open signals"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement.order_by(r.id.desc())).all()
        by_connector: dict[str, list[SignalRecord]] = {}
        for name, number, id_, type_, channel, by, state, message, progress, received_at, running_at in rows:
            by_connector.setdefault(name, []).append(
                SignalRecord(
                    number, id_, type_, None, channel, by, SignalState(state), message, cast("SignalProgress", progress or {}), received_at,
                    running_at,
                )
            )  # fmt: skip
        return by_connector

    def _insert(self, c: sa.Connection, values: dict[str, Any]) -> int:
        """Insert under the next number, which is above that of the last signal in the offset."""
        key = c.execute(sa.insert(SignalRow).values(**values)).inserted_primary_key
        assert key is not None
        number = int(key[0])
        offset = c.scalar(sa.select(OffsetRow.offset).where(OffsetRow.connector == values["connector"]))
        last = int((offset or {}).get("signal", 0))
        if number > last:
            return number
        # The offset knows more signals than this table: it was rebuilt from a change log. Count on from there.
        c.execute(sa.delete(SignalRow).where(SignalRow.id == number))
        while True:
            number = max(last, c.scalar(sa.select(sa.func.max(SignalRow.id))) or 0) + 1
            try:
                with c.begin_nested():
                    c.execute(sa.insert(SignalRow).values(id=number, **values))
                break
            except IntegrityError:  # a sender of another connector took the number in the same moment
                last = number
        if (
            self._database.engine.dialect.name == "postgresql"
        ):  # the others count on from the highest number by themselves
            name = self._database.qualify_table(SignalRow.__tablename__)
            c.execute(sa.text("SELECT setval(pg_get_serial_sequence(:t, 'id'), :n)"), {"t": name, "n": number})
        return number


def record_signal_state(
    c: sa.Connection,
    connector: str,
    number: int,
    state: SignalState,
    message: str,
    progress: dict[str, Any] | None = None,
) -> None:
    """Record the state of a signal within an open transaction. A final state stays; a message replaces the one before."""
    mine = (SignalRow.connector == connector) & (SignalRow.id == number)
    columns = sa.select(
        SignalRow.state, SignalRow.running_at, SignalRow.data if state is SignalState.REFUSED else sa.null()
    )
    row = c.execute(columns.where(mine).with_for_update()).one_or_none()
    if row is None or SignalState(row.state).is_final or (state is SignalState.RECEIVED and row.state != state.value):
        return
    now = datetime.now(UTC)
    values: dict[str, Any] = {"state": state.value}
    if state is SignalState.REFUSED:
        values["data"], note = shorten_data(row[2])
        message = f"{message.rstrip('.')}. {note}" if message and note else message or note
    values["message"] = to_storable_text(message, 1_000_000)
    if progress is not None:
        values["progress"] = progress
    if state is SignalState.RUNNING and row.running_at is None:
        values["running_at"] = now
    if state.is_final:
        values["ended_at"] = now
    c.execute(sa.update(SignalRow).where(mine).values(**values))


def origin_key(origin: str) -> str:
    """Return an origin as the table stores it: unchanged, or as a digest.

    It is a digest if a database might take two different ones for the same, as MySQL does with capital letters and accents.

    >>> origin_key("kafka:signals:0:17")
    'kafka:signals:0:17'
    """
    if _PLAIN.fullmatch(origin):
        return origin
    return "sha256=" + hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()
