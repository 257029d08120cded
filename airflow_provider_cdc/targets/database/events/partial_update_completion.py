"""Documents instead of their changes: partial updates are applied to the documents of the table, in the transaction that writes the results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.changelog.reading.partial_document_updates import (
    DocumentBuilder,
    DocumentEvents,
    LostDocument,
    find_partial_documents,
    refuse_lost,
)
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.model.table_schema import DocumentSchema
from airflow_provider_cdc.core.spi.partial_update_applier import partial_updates
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.events.event_reader import BEFORE, TableEvents
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseColumn, DatabaseTargetTable

_AT_ONCE = 500
"""Documents that are queried together."""

Present = Callable[[Sequence[Hashable]], dict[Hashable, str | None]]
"""The documents that there are of some keys."""


@dataclass(frozen=True, slots=True)
class DocumentCompletion:
    """Completes the events of one table, each before the next ones are read: the documents that they change are written by then.

    :param present: the documents that the table has
    :param inserts: rows that are not there come to be there; if not, an update of one is a no-op
    """

    pending: PendingBatches
    table: DatabaseTargetTable
    documents: DocumentSchema
    present: Present
    inserts: bool = True

    def __call__(self, events: Iterator[TableEvents]) -> Iterator[TableEvents]:
        """Yield the same events, with documents.

        :raises TargetError: updates cannot be applied, and no event after them has their documents
        """
        assert self.documents.updates is not None
        fold, body, absent = (
            DocumentBuilder(partial_updates(self.documents.updates)),
            body_of(self.table, self.documents),
            set[Hashable](),
        )
        for some in events:
            # events without partial updates may still show that a document was lost
            yield self._completed(fold, some, body, absent) if some.partial is not None or fold.lost else some
        lost: dict[Any, LostDocument] = {key[0]: document for key, document in fold.lost.items() if key not in absent}  # type: ignore[index]
        if lost:
            raise refuse_lost(lost, self.pending, str(self.table.name))

    def _completed(
        self, fold: DocumentBuilder, events: TableEvents, body: DatabaseColumn, absent: set[Hashable]
    ) -> TableEvents:
        lacking: Any = np.full(len(events.op), "", object) if events.left_out is None else events.left_out.copy()
        lacks = np.array([body.name in text.split("\0") for text in lacking], np.bool_) & (events.op == "u")
        rows, partial = events.rows, events.partial
        before = pa.nulls(len(events.op), pa.string()) if partial is None else _text(partial[BEFORE])
        changes = DocumentEvents(
            _keys(self.table, rows), events.op, events.seq, lacks, _text(rows[body.name]), before,
            {} if partial is None else {n: partial[n].combine_chunks() for n in partial.column_names if n != BEFORE},
        )  # fmt: skip
        if needed_keys := fold.find_needed_keys(changes):
            present = self.present(needed_keys)
            fold.present.update(present)
            if not self.inserts:
                absent.update(key for key in needed_keys if key not in present)
        documents, unknown = fold.apply_events(changes)
        rows = rows.set_column(rows.column_names.index(body.name), body.name, documents.cast(rows[body.name].type))
        for at in np.flatnonzero(lacks):
            lacking[at] = "\0".join(name for name in lacking[at].split("\0") if name != body.name)
        left_out = lacking if events.left_out is not None and (lacking != "").any() else None
        return replace(events, rows=rows, left_out=left_out, partial=None).select_events(~unknown)


def select_documents_to_complete(
    pending: PendingBatches, table: DatabaseTargetTable, config: DatabaseTargetConfig
) -> DocumentSchema | None:
    """Find the documents of a table that are to be completed; ``None`` if there is nothing to complete."""
    documents = find_partial_documents(pending)
    if documents is None or config.insert_mode is InsertMode.INSERT or not table.key_columns:
        return None
    return documents if any(field.column.name == documents.body for field in table.value_columns) else None


def present_in(
    dialect: TargetDialect, connection: sa.Connection, table: DatabaseTargetTable, documents: DocumentSchema
) -> Present:
    """Read the documents that a table has, as the transaction sees them."""
    return values_in(dialect, connection, table, body_of(table, documents).name)


def values_in(dialect: TargetDialect, connection: sa.Connection, table: DatabaseTargetTable, column: str) -> Present:
    """Read the texts that a table has in a column, as the transaction sees them."""
    names = [field.name for field in table.key_columns]

    def sql(text: str) -> str:
        return text.replace(":", "\\:")  # it is no parameter

    @cache
    def start() -> str:
        there = dialect.inspect_table(connection, table)
        assert there is not None
        value = dialect.build_exact_column(dialect.quote_name(column), there.columns[column].type)
        return sql(
            f"SELECT {dialect.format_column_list(names)}, {value} FROM {dialect.format_table_name(table.name)} WHERE "
        )

    condition = " AND ".join(f"{sql(dialect.quote_name(name))} = :k{{0}}_{at}" for at, name in enumerate(names))

    def present(keys: Sequence[Hashable]) -> dict[Hashable, str | None]:
        texts: dict[Hashable, str | None] = {}
        for begin in range(0, len(keys), _AT_ONCE):
            some: list[tuple[object, ...]] = list(keys[begin : begin + _AT_ONCE])  # type: ignore[arg-type]
            where = " OR ".join(f"({condition.replace('{0}', str(number))})" for number in range(len(some)))
            parameters = {f"k{n}_{at}": value for n, key in enumerate(some) for at, value in enumerate(key)}
            for row in connection.execute(sa.text(start() + where), parameters):
                texts[tuple(row[:-1])] = None if row[-1] is None else str(row[-1])
        return texts

    return present


def body_of(table: DatabaseTargetTable, documents: DocumentSchema) -> DatabaseColumn:
    """Return the column of a table that has the documents."""
    return next(field for field in table.value_columns if field.column.name == documents.body)


def _keys(table: DatabaseTargetTable, rows: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*[rows[field.name].to_pylist() for field in table.key_columns], strict=True))


def _text(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)
