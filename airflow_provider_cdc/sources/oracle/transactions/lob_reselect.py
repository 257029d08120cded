"""Reads LOB values that the log does not have from the table, by flashback query.

``DBMS_LOB`` writes, trims and appends in place: the log has the piece that was written, not the whole value. The row is read by its
ROWID as of the commit's SCN, so that the event has the value at its commit, not a later one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoRows
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups

log = logging.getLogger(__name__)


def reselect_values(
    rows: RedoRows,
    unknown: npt.NDArray[np.bool_],
    schema: TableSchema,
    row_ids: Sequence[str | None],
    scns: Sequence[int],
    lookups: StreamLookups,
) -> RedoRows:
    """Return the rows, with the values that could be read. The others stay unavailable, with a warning.

    :param unknown: ``bool[column, row]``: values that were changed, but are not in the log
    :param row_ids: ROWID per row
    :param scns: SCN of the commit, per row
    """
    assert rows.after is not None
    assert rows.unavailable_after is not None
    present_rows: dict[int, pa.StructArray] = {}
    for i in np.flatnonzero(unknown.any(axis=0)).tolist():
        row_id = row_ids[i]
        row = lookups.read_flashback_row(schema, row_id, scns[i]) if row_id and row_id.strip() != NO_ROW_ID else None
        if row is not None and _has_key(row, rows.after, i, schema):
            present_rows[i] = row
    unavailable, children = rows.unavailable_after.copy(), []
    for c, name in enumerate(schema.column_names):
        child = rows.after.field(c)
        read = [i for i in np.flatnonzero(unknown[c]).tolist() if i in present_rows]
        if read:
            mask = np.zeros(len(child), np.bool_)
            mask[read] = True
            child = pc.replace_with_mask(
                child, pa.array(mask), pa.concat_arrays([present_rows[i].field(c) for i in read])
            )
            unavailable[c, read] = False
        if left := int(unknown[c].sum()) - len(read):
            log.warning(
                "%d values of %s.%s were changed in place (DBMS_LOB), and neither the log nor a flashback query "
                  "contains the new value: target tables keep the old one. To get the current value, snapshot the "
                  "table again, or update the row.",
                left, schema.id, name,
            )  # fmt: skip
        children.append(child)
    absent = rows.after.is_null() if rows.after.null_count else None
    after = pa.StructArray.from_arrays(children, fields=list(rows.after.type), mask=absent)
    return replace(rows, after=after, unavailable_after=unavailable)


def _has_key(row: pa.StructArray, after: pa.StructArray, i: int, schema: TableSchema) -> bool:
    """Compare the keys of a row and an event: another row may have got the ROWID."""
    return all(row.field(name)[0] == after.field(name)[i] for name in schema.key)
