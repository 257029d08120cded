"""The net changes of a transaction that has undone changes of long values, read from the table.

A statement with long values has several log rows without a ROWID, and no log row says where a statement ends. So an undo row, which has a
ROWID alone, does not say for certain which change it undoes. The table does: each row that the transaction has touched is read as it was before,
and as of the commit, by flashback queries. In between, the log has nothing that others have ever seen.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model import log_items
from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import INTERNAL
from airflow_provider_cdc.sources.oracle.redo.lob_assembler import read_keys
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import Mask, RedoReader, RedoRows
from airflow_provider_cdc.sources.oracle.schema.column_types import NULL
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups

Int64s = npt.NDArray[np.int64]

MOST_ROWS: Final = 1_000
"""Greatest number of table rows that are read for a transaction; each needs two queries."""


def net_changes(
    reader: RedoReader, rows: pa.Table, commit_scn: int, lookups: StreamLookups
) -> tuple[RedoRows, Int64s] | None:
    """Return the difference that a transaction has made to one table: one output row for each row that differs.

    :param rows: columns of :data:`airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments.ROWS`: all log rows of the table in the transaction, undo rows among them, in log order
    :return: the output rows, and for each the index of a log row that touches it, ascending; ``None`` if the table has no key, if it was
        changed since, or if its undo is not kept so long
    :raises UnreadableValue: a statement cannot be understood
    :raises SchemaConflict: a statement names another table, or a column that the schema does not have
    """
    schema = reader.schema
    texts, codes = rows.column("sql").combine_chunks(), rows.column("code").to_numpy()
    undo = rows.column("rollback").to_numpy(zero_copy_only=False)
    keys = read_keys(reader, texts, codes, undo | (codes == INTERNAL)) if schema.key else None
    if keys is None or len(keys) > MOST_ROWS:
        return None
    scns = rows.column("scn").to_numpy()
    befores, afters, ops, origin = list[pa.StructArray](), list[pa.StructArray](), list[int](), list[int]()
    for key, i in sorted(keys.items(), key=lambda item: item[1]):
        before, after = (lookups.row_of_key(schema, key, scn) for scn in (int(scns[i]) - 1, commit_scn))
        if before is None or after is None:
            return None
        if before.equals(after):
            continue
        ops.append(log_items.CREATE if not len(before) else log_items.UPDATE if len(after) else log_items.DELETE)
        befores.append(before if len(before) else pa.nulls(1, before.type))
        afters.append(after if len(after) else pa.nulls(1, after.type))
        origin.append(max(i, origin[-1] + 1) if origin else i)  # an update of the key touches two rows at once
    if origin and origin[-1] >= len(rows):
        return None
    if not ops:
        return RedoRows(np.array([], np.int8), None, None, None, None, np.array([], np.bool_)), np.array([], np.int64)
    op = np.array(ops, np.int8)
    unavailable = _not_captured(reader, len(op))
    changes = RedoRows(
        op,
        pa.concat_arrays(befores) if (op != log_items.CREATE).any() else None,
        pa.concat_arrays(afters) if (op != log_items.DELETE).any() else None,
        unavailable,
        unavailable,
        np.ones(len(op), np.bool_),
    )
    return changes, np.array(origin, np.int64)


def _not_captured(reader: RedoReader, n: int) -> Mask | None:
    """``bool[column, row]``: LOBs that are not captured; ``None`` if there are none."""
    columns = enumerate(reader.schema.columns)
    absent = np.array([reader.column_read(c).how == k.NOT_READ and column.type != NULL for c, column in columns])
    return np.repeat(absent[:, None], n, axis=1) if absent.any() else None
