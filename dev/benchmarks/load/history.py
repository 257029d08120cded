"""A history of years for a connector, made directly: batches without events, and schema changes that come in pairs, so that tables end as they began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableSchema, as_document
from airflow_provider_cdc.state.models import BatchRow, OffsetHistoryRow, OffsetRow, SchemaHistoryRow
from dev.benchmarks.engines.ours import OwnConnector
from dev.bootstrap.report import Step

CONNECTOR = "bench"
_ENDS = timedelta(days=60)
"""How long ago the history ends: longer than anything is kept by default."""
_AT_ONCE = 10_000


def make(ours: OwnConnector, batches: int, changes: int, step: Step) -> None:
    """Add batches to a connector's history, at the position of the source that it has reached.

    :param changes: schema changes, an even number, spread over the batches; the first two concern one table, the next two another one
    """
    changelog = ChangeLog(str(ours.changelog))
    engine = sa.create_engine(f"sqlite:///{ours.folder}/state.db")
    with engine.begin() as c:
        before = c.execute(sa.select(OffsetRow.__table__)).one()
        batch = c.execute(sa.select(BatchRow.__table__).order_by(BatchRow.batch.desc())).first()
        # what there is becomes older than what comes: retention goes by time, and offsets have theirs in their order
        for row in (OffsetHistoryRow, BatchRow, SchemaHistoryRow):
            c.execute(sa.update(row).values(created_at=_began(batches)))
    assert batch is not None
    schemas: dict[str, TableSchema] = {}
    for manifest in changelog.read_manifests(CONNECTOR):
        schemas |= {topic: max(found.values(), key=lambda s: s.version) for topic, found in manifest.schemas.items()}
    structure_changes = _Changes(schemas, changes, batches, dict(before.offset["position"]))
    last = changelog.find_manifest(CONNECTOR, before.batch)
    assert last is not None
    empty = {
        name: last.to_document()[name]
        for name in ("format", "connector", "source", "epoch", "writer", "config")
        if name in last.to_document()
    }
    # what the manifest says of the offset is the whole of it; no table is being read any more
    offset, seq, began = last.offset_after.model_dump(mode="json", exclude_defaults=True), before.seq, _began(batches)
    rows: dict[Any, list[dict[str, Any]]] = {OffsetHistoryRow: [], BatchRow: [], SchemaHistoryRow: []}
    for n in range(1, batches + 1):
        number, at = before.batch + n, began + n * timedelta(minutes=1)
        records = list(structure_changes.changes_of_batch(n, seq, at))
        after = {**offset, "seq": seq + len(records), "batch": number}
        document = {
            **empty, "batch": number, "created_at": at.isoformat(), "first_seq": seq + 1, "last_seq": seq + len(records),
            "offset_before": {**offset, "seq": seq, "batch": number - 1}, "offset_after": after,
            "schema_changes": [record.model_dump(mode="json", exclude_defaults=True) for record, _ in records],
            "schemas": {topic: {str(r.changes[0].table.version): as_document(r.changes[0].table)} for r, topic in records if r.changes[0].table},
        }  # fmt: skip
        path = changelog.path_of(CONNECTOR, number)
        Path(path).write_bytes(orjson.dumps({k: v for k, v in document.items() if v != [] and v != {}}))
        own = {**before.offset, "seq": seq + len(records), "batch": number}
        rows[OffsetHistoryRow].append({
            "connector": CONNECTOR, "version": before.version + n, "offset": own, "epoch": before.epoch, "reason": f"batch {number}", "created_at": at,
        })  # fmt: skip
        rows[BatchRow].append({
            "connector": CONNECTOR, "batch": number, "manifest": path, "first_seq": seq + 1, "last_seq": seq + len(records), "events": 0,
            "bytes": 0, "topics": {}, "position": batch.position, "epoch": before.epoch, "created_at": at,
        })  # fmt: skip
        rows[SchemaHistoryRow] += [
            {"connector": CONNECTOR, "seq": r.seq, "batch": number, "record": r.model_dump(mode="json", exclude_defaults=True), "created_at": at}
            for r, _ in records
        ]  # fmt: skip
        seq += len(records)
        if n % _AT_ONCE == 0 or n == batches:
            with engine.begin() as c:
                for row, values in rows.items():
                    if values:
                        c.execute(sa.insert(row), values)
                    values.clear()
            step.progress(f"{n:,} of {batches:,} batches")
    with engine.begin() as c:
        c.execute(
            sa.update(OffsetRow).values(
                version=before.version + batches, offset=own, seq=seq, batch=number, updated_at=at
            )
        )
    engine.dispose()


def _began(batches: int) -> datetime:
    return datetime.now(UTC) - _ENDS - batches * timedelta(minutes=1)


class _Changes:
    """A column that is added to a table, and dropped by the next statement.

    :param schemas: topic → its newest schema
    """

    def __init__(self, schemas: dict[str, TableSchema], changes: int, batches: int, position: dict[str, Any]) -> None:
        self._topics, self._schemas = sorted(schemas), schemas
        self._changes, self._batches, self._position, self._made = changes, batches, position, 0

    def changes_of_batch(self, batch: int, seq: int, at: datetime) -> Iterator[tuple[SchemaChangeRecord, str]]:
        """Return the schema changes of a batch, each with its topic."""
        while self._made < self._changes * batch // self._batches:
            topic = self._topics[self._made // 2 % len(self._topics)]
            adds = self._made % 2 == 0
            self._made += 1
            seq += 1
            yield self._record(topic, seq, at, adds=adds), topic

    def _record(self, topic: str, seq: int, at: datetime, *, adds: bool) -> SchemaChangeRecord:
        before = self._schemas[topic]
        columns = (*before.columns, Column(name="years", type="int32")) if adds else before.columns[:-1]
        after = before.model_copy(update={"columns": columns, "version": before.version + 1})
        self._schemas[topic] = after
        change = TableChange(
            type="ALTER", id=after.id, table=after, added={"years": None} if adds else {}, dropped=() if adds else ("years",)
        )  # fmt: skip
        what = "ADD COLUMN years INT" if adds else "DROP COLUMN years"
        return SchemaChangeRecord(
            seq=seq, ddl=f"ALTER TABLE {after.id.name} {what}", database=after.id.namespace, position=self._position, ts_us=int(at.timestamp() * 1e6), captured_us=int(at.timestamp() * 1e6), changes=[change],
        )  # fmt: skip
