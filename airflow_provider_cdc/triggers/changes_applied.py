"""Waits until a target has applied all changes up to some point."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import StateError, StorageUnavailable
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from airflow_provider_cdc.services.text import status_texts
from airflow_provider_cdc.triggers.state_table_trigger import PollResult, StateTrigger

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.core.spi.state_records import BatchRecord, ConnectorRecord
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.services.text.status_texts import AppliedTarget
    from airflow_provider_cdc.state.state_store import StateStore


class AppliedTrigger(StateTrigger):
    """Fires when a target has applied a batch; one of ``batch``, ``seq`` and ``position`` says which.

    The reports of the targets are read from the change log that the connector's last run wrote. Fires
    ``{"batch", "applied", "target"}``: the batch that was waited for and the target's last one.

    :param target: kind of target, as of ``ApplyChangesOperator``
    :param location: which target, where there are several of a kind, as of ``ApplyChangesOperator``; without it, all of them
    :param topic: only the table of this topic counts; without it, all tables do
    :param batch: number of a batch
    :param seq: a sequence number: the batch is the one that holds it
    :param position: a position in the source's log, as ``CaptureOperator`` or an event has it: the batch is the first one that reaches it
    """

    def __init__(
        self,
        connector: str,
        *,
        target: str = "delta",
        location: str | None = None,
        topic: str | None = None,
        batch: int | None = None,
        seq: int | None = None,
        position: dict[str, Any] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(connector, **common)
        self.target, self.location = target, location
        self.topic, self.batch, self.seq, self.position = topic, batch, seq, position
        self._topic_known = False

    def build_arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("target", "location", "topic", "batch", "seq", "position")}

    def poll_state(self, record: ConnectorRecord | None, store: StateStore) -> PollResult | Callable[[], PollResult]:
        access = None if record is None else access_of(record, self.state_conn_id)
        if record is None or access is None or not record.last_batch:
            return PollResult(f"Connector {self.connector} has captured nothing yet.", "nothing")
        if self.topic is not None and not self._captures(self.topic, store):
            return PollResult(f"Connector {self.connector} has captured no table of topic {self.topic} yet.", "topic")
        if self.batch is None:
            self.batch = self._find(store, record)
        if self.batch is None:
            point_text = f"seq {self.seq}" if self.seq is not None else status_texts.position_text(self.position)
            text = f"Connector {self.connector} has not captured up to {point_text} yet; it is at {_at(record)}."
            return PollResult(text, "captured")
        return partial(self._applied, access, self.batch)

    def _captures(self, topic: str, store: StateStore) -> bool:
        """Return whether a topic may be one of the connector. Of another one it would be said that nothing is left to apply."""
        from airflow_provider_cdc.core.config.topic_names import LONGEST, sanitize_name
        from airflow_provider_cdc.core.model.schema_history import SchemaHistory

        if not self._topic_known:
            tables, name = (
                SchemaHistory.from_stored(store.load_schemas(self.connector)).ever_known_tables,
                sanitize_name(topic),
            )
            # the Airflow connection may set the part before the table's name
            named = len(name) == LONGEST or any(name.endswith(sanitize_name(table.name)) for table in tables)
            self._topic_known = named or any(topic in batch.topics for batch in store.list_batches(self.connector))
        return self._topic_known

    def _applied(self, access: ConnectorAccess, batch: int) -> PollResult:
        """Check the reports of targets beside the change log."""
        try:
            reports = status_texts.list_applied_targets(access.open_change_log(), self.connector)
        except OSError as e:
            raise StorageUnavailable(f"The change log of {self.connector} cannot be read: {e}") from e
        reports = [r for r in reports if r["target"] == self.target and self.location in (None, r["location"])]
        # of several targets the one that is furthest behind counts
        report = min(reports, key=self._stands, default=None)
        stands = 0 if report is None else self._stands(report)
        where = f" at {report['location']}" if report is not None and len(reports) > 1 else ""
        text = f"Target {self.target}{where} of {self.connector} has applied batch {stands}; waiting for batch {batch}."
        failed = "" if report is None else self._failed(report)
        if stands >= batch:
            return PollResult(text, "applied", {"batch": batch, "applied": stands, "target": self.target})
        return PollResult(text + (f" Its last run failed: {failed}" if failed else ""), f"{stands} {failed}")

    def _stands(self, report: AppliedTarget) -> int:
        """Return the batch up to which all selected tables are applied. Tables that failed are behind the others."""
        last, lagging = int(report["last_batch"] or 0), report["lagging"] or {}
        if self.topic is not None:
            return min([last, *(int(batch) for name, batch in lagging.items() if self._is_of_it(report, name))])
        return min([last, *map(int, lagging.values())])

    def _failed(self, report: AppliedTarget) -> str:
        errors = report["failed"] or {}
        return "; ".join(f"{topic}: {text}" for topic, text in sorted(errors.items()) if self._is_of_it(report, topic))

    def _is_of_it(self, report: AppliedTarget, name: str) -> bool:
        """Check whether a table is one that is waited for; a route may make several of one topic."""
        return self.topic is None or self.topic in (name, report.get("topics", {}).get(name))

    def _find(self, store: StateStore, record: ConnectorRecord) -> int | None:
        """Find the first batch with which everything up to the point is captured; ``None`` as long as it is not."""
        last = record.last_batch
        if self.seq is not None:
            return None if self.seq > record.last_seq else _first(store, self.connector, last, self._has_seq)
        if self.position is None:
            return last
        parse = _parser(record)
        position = parse(self.position)
        if record.offset_position is None or not parse(record.offset_position).has_reached(position):
            return None
        # positions without changes are passed without a batch: then nothing has to be applied after the last one
        return _first(store, self.connector, last, lambda b: parse(b.position).has_reached(position))

    def _has_seq(self, batch: BatchRecord) -> bool:
        return batch.last_seq >= (self.seq or 0)


def _first(store: StateStore, connector: str, last: int, fits: Callable[[BatchRecord], bool]) -> int:
    """Find the first matching batch, if all behind it match too; the last one if none matches."""
    low, high = 1, last
    while low < high:
        middle = (low + high) // 2
        batches = store.list_batches(connector, batch=middle)
        if batches and fits(batches[0]):
            high = middle
        else:
            low = middle + 1
    return low


def _parser(record: ConnectorRecord) -> Callable[[dict[str, Any]], Position]:
    """Return the function that builds positions of the connector's source. Needs no connection to the source."""
    from airflow_provider_cdc.connector import open_source

    access = access_of(record)
    if access is None:
        raise StateError(
            f"The source of connector {record.connector} is not recorded.",
            safe="Nothing was changed.",
            remedy="run its capture once",
        )
    access = access.use_current_connection()
    source = open_source(access.definition, access.resolve_properties())

    def parse(document: dict[str, Any]) -> Position:
        return source.position_of(document)

    return parse


def _at(record: ConnectorRecord) -> str:
    return f"{status_texts.position_text(record.offset_position)}, seq {record.last_seq}"
