"""From routed events to blocks of rows: the kernel decodes the rows of one table at a time; the ``source`` fields are added as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceLogDamaged, TerminalError, values_of
from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, RowBlock
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns.column_buffers import ScratchMemory, build_struct_array
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.rows.row_layout import RowImageLayout
from airflow_provider_cdc.sources.mysql.log.transaction_ids import TransactionColumns

BLOCK_ROWS = 65_536
_FIXED_BYTES = 16 << 20
_VARIABLE_BYTES = 128 << 20
"""Bytes reserved for the columns of fixed and of variable length of a row image; the system only provides pages that are used."""

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Queries = tuple[list[str], Int32s]
"""Statements that the log carries beside rows, and per event the index of the one before it (-1 = none)."""


@dataclass(slots=True)
class RoutedEvents:
    """Events with the output of the ``route`` kernel.

    :param layout_of: per event, index of its layout, ``NOT_CAPTURED`` or ``NOT_ROWS``
    :param transaction_of: per event, index of its transaction
    :param ends: per event, 64-bit offset after it
    :param file: the log file of the events
    """

    events: EventSet
    layout_of: Int32s
    transaction_of: Int32s
    ends: Int64s
    file: str


def decode_row_blocks(
    routed: RoutedEvents,
    layouts: list[RowImageLayout],
    lo: int,
    hi: int,
    first: int,
    columns: TransactionColumns,
    queries: Queries | None,
    scratch: ScratchMemory,
) -> list[RowBlock]:
    """Decode the rows of the events ``lo`` to ``hi``: one or more blocks per table.

    :param first: index of the block's first transaction among those of ``routed``
    :param columns: ids and times of the block's transactions
    :param queries: statements of the rows, with ``include.query``
    :raises PrerequisiteError: a row was logged without all its columns
    :raises SourceLogDamaged: a value goes past the end of its event
    """
    row_events = np.flatnonzero(routed.layout_of[lo:hi] >= 0) + lo
    parts: list[tuple[RowBlock, Int32s, Int32s]] = []
    for number in np.unique(routed.layout_of[row_events]):
        picked = row_events[routed.layout_of[row_events] == number]
        parts += _rows_of(routed, layouts[int(number)], picked, first, columns, queries, scratch)
    counts = np.zeros(hi, np.int64)
    for _, event_of, _ in parts:
        counts += np.bincount(event_of, minlength=hi)
    before = np.cumsum(counts) - counts
    for block, event_of, row_in_event in parts:
        block.order = before[event_of] + row_in_event
    return [block for block, _, _ in parts]


def _rows_of(
    routed: RoutedEvents,
    layout: RowImageLayout,
    picked: Int64s,
    first: int,
    columns: TransactionColumns,
    queries: Queries | None,
    scratch: ScratchMemory,
) -> Iterator[tuple[RowBlock, Int32s, Int32s]]:
    """Blocks of one table; for each row of a block also the index of its event, and its number in the event."""
    table = routed.events.table
    types = table[picked, k.EV_TYPE]
    writes = (types == ev.WRITE_ROWS_V1) | (types == ev.WRITE_ROWS)
    both = not writes.all()
    # rows of one kind of event have the same columns
    alike = [picked] if layout.partial is None else [picked[writes], picked[~writes]]
    whole, other = layout, layout.partial
    for part, room, capacity in chain.from_iterable(
        _fitting_parts(events, table[events, k.EV_LENGTH], whole) for events in alike if len(events)
    ):
        resume, status, changed = np.zeros(3, np.int64), k.FULL, -1
        while status == k.FULL:
            after = layout.allocate_buffers(capacity, room, scratch, "after ")
            before = layout.allocate_buffers(capacity if both else 1, room if both else 1, scratch, "before ")
            op, event_of, row_in = (
                np.empty(capacity, np.int8),
                np.empty(capacity, np.int32),
                np.empty(capacity, np.int32),
            )
            n, status = k.decode_rows(
                routed.events.buf,
                table,
                part,
                resume,
                layout.columns,
                layout.logged,
                before.kernel_arrays,
                after.kernel_arrays,
                both,
                op,
                event_of,
                row_in,
            )
            read = layout
            if status == k.BAD_IMAGE and other is not None and changed != resume[0]:
                layout, other, changed, status = other, layout, resume[0], k.FULL
                resume[1:] = 0
            elif status in (k.BAD_VALUE, k.BAD_IMAGE):
                raise _unreadable(routed, whole, status, resume)
            if not n:
                continue
            with values_of(read.schema.id):
                op, event_of, row_in = op[:n], event_of[:n], row_in[:n]
                block = RowBlock(
                    table=read.schema,
                    op=op,
                    before=build_struct_array(
                        before, read.finishers, n, (op != CREATE).view(np.uint8), read.type, read.absent
                    )
                    if both
                    else None,
                    after=build_struct_array(
                        after, read.finishers, n, (op != DELETE).view(np.uint8), read.type, read.absent
                    ),
                    order=np.empty(0, np.int64),
                    transaction=routed.transaction_of[event_of] - np.int32(first),
                    ts_us=table[event_of, k.EV_TIME] * 1_000_000,
                    source={},
                )
            block.source = _source(routed, block, event_of, row_in, columns, queries)
            yield block, event_of, row_in


def _fitting_parts(picked: Int64s, lengths: Int64s, layout: RowImageLayout) -> Iterator[tuple[Int64s, int, int]]:
    """Split events so that the reserved memory is certain to hold each part.

    :param lengths: size of each event, bytes
    :return: the events of a part, its bytes, and the greatest number of rows to decode at once
    """
    limit = max(_VARIABLE_BYTES // max(layout.variable_column_count, 1), int(lengths.max()))
    most_rows = min(BLOCK_ROWS, max(_FIXED_BYTES // (8 * len(layout.stores)), 1024))
    at = 0
    while at < len(picked):
        fits = at + max(int(np.searchsorted(np.cumsum(lengths[at:]), limit, side="right")), 1)
        room = int(lengths[at:fits].sum())
        yield picked[at:fits], room, min(room // max(layout.minimum, 1) + 1, most_rows)
        at = fits


def _source(
    routed: RoutedEvents,
    block: RowBlock,
    event_of: Int32s,
    row_in: Int32s,
    columns: TransactionColumns,
    queries: Queries | None,
) -> dict[str, pa.Array]:
    """Fields of the ``source`` block that only this source has (Debezium MySQL connector, "source" fields)."""
    table, n = routed.events.table, len(event_of)
    assert block.transaction is not None
    owner = block.transaction
    threads = columns.threads[owner]
    statements: pa.Array = pa.nulls(n, pa.string())
    if queries is not None:
        texts, last = queries
        index = last[event_of]
        statements = pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(texts, pa.string()))
    ids = columns.transactions.id
    return {
        "server_id": pa.array(table[event_of, k.EV_SERVER]),
        "gtid": pa.DictionaryArray.from_arrays(pa.array(owner), ids) if _are_gtids(ids) else pa.nulls(n, pa.string()),
        "file": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([routed.file])),
        "pos": pa.array(routed.ends[event_of] - table[event_of, k.EV_SIZE]),
        "row": pa.array(row_in),
        "thread": pa.array(threads, mask=threads < 0) if (threads < 0).any() else pa.array(threads),
        "query": statements,
    }


def _are_gtids(ids: pa.StringArray) -> bool:
    return len(ids) > 0 and not ids[0].as_py().startswith("file=")


def _unreadable(routed: RoutedEvents, layout: RowImageLayout, status: int, resume: Int64s) -> TerminalError:
    error = _bad_row(routed, layout, status, resume)
    error.table = str(layout.schema.id)
    return error


def _bad_row(routed: RoutedEvents, layout: RowImageLayout, status: int, resume: Int64s) -> TerminalError:
    event = int(resume[1])
    begins = int(routed.ends[event] - routed.events.table[event, k.EV_SIZE])
    where = f"{layout.schema.id}, {routed.file}:{begins}"
    if status == k.BAD_IMAGE and (generated := [c.name for c in layout.schema.columns if c.declared.generated]):
        return PrerequisiteError(
            f"A row of {layout.schema.id} was logged without all of its columns: binlog_row_image was not FULL "
            f"when it was written; or the server leaves generated columns ({', '.join(generated)}) out of updates "
            "and deletes, as MariaDB 11.8.9 does regardless of its settings.",
            where=where,
            safe="Everything before this transaction is captured. No value was guessed.",
            remedy="SET GLOBAL binlog_row_image = 'FULL', also in the sessions that set it; and exclude the generated "
            "columns with column.exclude.list, or run a server release that logs them, such as MariaDB 10.11",
        )
    if status == k.BAD_IMAGE:
        return PrerequisiteError(
            f"A row of {layout.schema.id} was logged without all of its columns: binlog_row_image was not FULL when it was written.",
            where=where,
            safe="Everything before this transaction is captured.",
            remedy="SET GLOBAL binlog_row_image = 'FULL', also in the sessions that set it",
        )
    return SourceLogDamaged(
        f"The value of column {layout.schema.columns[int(resume[2])].name} in a row exceeds the end of its event.",
        where=where,
        safe="Everything before this transaction is captured; no value was guessed.",
        remedy="please report this error with the table's SHOW CREATE TABLE",
    )
