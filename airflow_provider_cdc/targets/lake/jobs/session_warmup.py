"""Warms a session up before it takes over.

It works on a scratch table, while another session still works on the real ones.

A JVM that has just started takes many times as long as one that has done the same before: for its first tables, it loads thousands of classes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import pyarrow as pa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.scratch_change_log import scratch_folder
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, arrow_type

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.session_warmup")

CONNECTOR, TOPIC = "rehearsal", "rehearsal.t"
ROUNDS = 5
"""Batches that are applied: the first one makes the table, the others change it."""
LONGEST_S = 60.0
_ROWS = 200
_TYPES = {
    "id": "int64",
    "text": "string",
    "number": "int32",
    "amount": "decimal128(12, 2)",
    "at": "timestamp[us, tz=UTC]",
}


class RehearsedJob(Protocol):
    """The part of :class:`airflow_provider_cdc.targets.lake.jobs.apply_changes.ApplyChanges` that a rehearsal needs."""

    def run(self) -> object: ...


def rehearse_apply(job: Callable[[ChangeLog, str, str], RehearsedJob]) -> None:
    """Apply some batches of a change log that was made for it, to a table in a temporary folder.

    :param job: makes a job for a change log, a connector and a location; its session runs on this machine
    """
    began = time.monotonic()
    try:
        with scratch_folder() as folder:
            changelog = ChangeLog(f"{folder}/changelog")
            done = job(changelog, CONNECTOR, f"{folder}/lake/{{table}}")
            for number in range(1, ROUNDS + 1):
                _commit(changelog, number)
                done.run()
                if time.monotonic() - began > LONGEST_S:
                    break
    except Exception as e:  # without it, the first real tables take longer, and that is all
        log.warning("The session warm-up failed; the first tables take longer: %s", e, exc_info=True)
    else:
        log.info("The session warm-up took %.1f s.", time.monotonic() - began)


def _commit(changelog: ChangeLog, number: int) -> None:
    """Commit a batch: rows that are read, then in each batch new ones, changes and deletes."""
    columns = tuple(Column(name=name, type=type_, nullable=name != "id") for name, type_ in _TYPES.items())
    schema = TableSchema(id=TableId(namespace="rehearsal", name="t"), columns=columns, key=("id",), version=1)
    first = (number - 1) * _ROWS + 1
    ops = ["r"] * _ROWS if number == 1 else ["c", "u", "u", "d"] * (_ROWS // 4)
    counts = {letter: ops.count(letter) for letter in set(ops)}
    writer = changelog.open_batch_writer(CONNECTOR, number, 1, "rehearsal")
    writer.write(EventBatch(TOPIC, schema, _events(number, first, ops), first, first + _ROWS - 1, counts))
    changelog.commit_manifest(
        Manifest(
            connector=CONNECTOR, source="rehearsal", batch=number, epoch=1, writer="rehearsal", created_at=datetime.now(UTC).isoformat(),
            first_seq=first, last_seq=first + _ROWS - 1, offset_before=None,
            offset_after=Offset(position={"batch": number}, seq=first + _ROWS - 1, batch=number), files=writer.finish_files(), schemas={TOPIC: {"1": schema}},
        )
    )  # fmt: skip


def _events(number: int, first: int, ops: list[str]) -> pa.RecordBatch:
    """Events of rows that are new, and of rows of the batch before."""
    ids = [(number if op in "cr" else number - 1) * _ROWS + i for i, op in enumerate(ops)]
    at = datetime.now(UTC)
    rows = [{"id": id_, "text": f"row {id_}", "number": number, "amount": None, "at": at} for id_ in ids]
    row = pa.struct([(name, arrow_type(type_)) for name, type_ in _TYPES.items()])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first, first + _ROWS), pa.int64()),
            pa.array(ops),
            pa.array([{"id": id_} for id_ in ids], pa.struct([("id", pa.int64())])),
            pa.array([None if op in "cr" else values for op, values in zip(ops, rows, strict=True)], row),
            pa.array([None if op == "d" else values for op, values in zip(ops, rows, strict=True)], row),
            pa.array([{"ts_ms": int(at.timestamp() * 1000)}] * _ROWS, pa.struct([("ts_ms", pa.int64())])),
        ],
        names=["seq", "op", "key", "before", "after", "source"],
    )
