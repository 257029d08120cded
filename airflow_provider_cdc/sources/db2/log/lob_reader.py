"""Values of LOB and XML columns, which change tables do not have: read from the table itself, by the row's key.

The table has the row as it is now. If it was changed since, its LOBs may be newer than the change that asked for them; the later change comes, too,
and asks again. If the row is gone, or has another key now, its LOBs stay unavailable: the changes that made it so come later.

An update that comes as two rows looks as a row does that was deleted and inserted again in one transaction. Where the change table does not say that
a LOB was changed, it may be NULL in the new row, or as it was: it is read, too. Of an update that comes as one row it is as it was.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import LobHandling
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error
from airflow_provider_cdc.sources.db2.error_translation import NO_COLUMN, UNDEFINED
from airflow_provider_cdc.sources.db2.log.change_table_layout import ChangeTableLayout
from airflow_provider_cdc.sources.db2.log.ordered_table_changes import ChangeArrays, Mask
from airflow_provider_cdc.sources.db2.log.query_connection import QueryConnection
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

log = logging.getLogger(__name__)

KEYS_AT_ONCE: Final = 50


class LobReader:
    """Reads LOBs by key.

    :ivar read: rows whose LOBs were read; ``gone`` those that were not there any more
    """

    def __init__(self, config: Db2Config, questions: QueryConnection) -> None:
        self._config, self._questions = config, questions
        self._reported_tables: set[TableId] = set()
        self.read = self.gone = 0

    def fill_lobs(self, changes: ChangeArrays, layout: ChangeTableLayout, changed: Mask) -> ChangeArrays:
        """Return the changes, with the LOBs that could be read; the others stay unavailable.

        :param changed: ``bool[lob, change]``: those that a change has changed, as far as the change table shows
        """
        if changes.after is None or self._config.lob_handling_mode is LobHandling.UNAVAILABLE:
            return changes
        if not layout.schema.key:
            self._warn_once(layout)
            return changes
        update = changes.op == UPDATE
        changed = (
            changed | (changes.op == CREATE) | (update if layout.registration.pairs else update & _other_key(changes))
        )
        changed &= changes.op != DELETE
        changed_rows = np.flatnonzero(changed.any(axis=0))
        if not len(changed_rows):
            return changes
        schema = _read_columns(layout)
        keys = changes.after.take(pa.array(changed_rows))
        present = self._read_present_rows(
            schema, [keys.field(layout.schema.column_names.index(name)) for name in schema.key]
        )
        assert changes.unavailable_after is not None
        unavailable = changes.unavailable_after.copy()
        children = [changes.after.field(i) for i in range(changes.after.type.num_fields)]
        for i, column in enumerate(layout.lobs):
            at = np.full(len(changes), -1, np.int64)
            at[changed_rows] = np.where(changed[i, changed_rows], present.place, -1)
            index = pa.array(at, mask=at < 0)
            children[column] = present.rows.field(layout.schema.column_names[column]).take(index)
            unavailable[column] &= at < 0
        after = pa.StructArray.from_arrays(
            children,
            fields=list(changes.after.type),
            mask=changes.after.is_null() if changes.after.null_count else None,
        )
        return ChangeArrays(
            changes.table, changes.commit, changes.intent, changes.op, changes.before, after,
            changes.unavailable_before, unavailable,
        )  # fmt: skip

    def _read_present_rows(self, schema: TableSchema, keys: Sequence[pa.Array]) -> _FoundRows:
        """Read the present rows of some keys."""
        tuples = list(zip(*(array.to_pylist() for array in keys), strict=True))
        different = list(dict.fromkeys(tuples))
        rows = list(self._rows(schema, different))
        read = SelectList(schema, self._config).struct_from_rows([row for part in rows for row in part])
        place = {key: i for i, key in enumerate(zip(*(read.field(n).to_pylist() for n in schema.key), strict=True))}
        self.read += len(place)
        self.gone += len(different) - len(place)
        return _FoundRows(read, np.array([place.get(key, -1) for key in tuples], np.int64))

    def _rows(self, schema: TableSchema, keys: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
        columns = [schema.get_column(name) for name in schema.key]
        key_condition = " AND ".join(f"t.{quoted_name(c.name)} = ?" for c in columns)
        expressions = ", ".join(SelectList(schema, self._config).expressions)
        for start in range(0, len(keys), KEYS_AT_ONCE):
            part = keys[start : start + KEYS_AT_ONCE]
            where = " OR ".join([f"({key_condition})"] * len(part))
            sql = f"SELECT {expressions} FROM {quote_table(schema.id)} t WHERE {where} WITH CS"
            values = [_parameter(c, v) for key in part for c, v in zip(columns, key, strict=True)]
            yield self._questions.run_query(lambda c, sql=sql, values=values: _present(c, sql, values), str(schema.id))  # type: ignore[misc]

    def _warn_once(self, layout: ChangeTableLayout) -> None:
        if layout.schema.id not in self._reported_tables:
            self._reported_tables.add(layout.schema.id)
            log.warning(
                "Change tables contain no values of LOB and XML columns, and %s has no key to read them by: in "
                  "target tables, %s keep their old values, and are null in new rows. Add a primary key to the "
                  "table, or snapshot the table regularly.",
                layout.schema.id, ", ".join(layout.schema.column_names[i] for i in layout.lobs),
            )  # fmt: skip


class _FoundRows:
    """Rows of a table.

    :param place: of each key that was asked for, the number of its row; -1 without one
    """

    def __init__(self, rows: pa.StructArray, place: npt.NDArray[np.int64]) -> None:
        self.rows, self.place = rows, place


def _present(connection: Db2Connection, sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
    """Read the rows; none if the table or a column is gone."""
    try:
        return connection.fetch_rows(sql, *values)
    except Db2Error as e:
        if e.code in UNDEFINED | NO_COLUMN:
            log.info("LOBs can no longer be read: %s", e.message)
            return []
        raise


def _read_columns(layout: ChangeTableLayout) -> TableSchema:
    """Return the schema of only the key and the LOBs of a table."""
    names = {*layout.schema.key, *(layout.schema.column_names[i] for i in layout.lobs)}
    columns = tuple(c for c in layout.schema.columns if c.name in names)
    return layout.schema.model_copy(update={"columns": columns})


def _other_key(changes: ChangeArrays) -> npt.NDArray[np.bool_]:
    """Mask of the changes whose key before is another one than after."""
    other = np.zeros(len(changes), np.bool_)
    if changes.before is not None and changes.after is not None:
        for name in changes.table.key:
            differs = pc.not_equal(changes.before.field(name), changes.after.field(name))
            other |= pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
    return other


def _parameter(column: Column, value: Any) -> Any:
    """Convert a value of a key to the driver's form, to be compared with the column."""
    if Db2ColumnType.from_column(column).base == "TIME" and isinstance(value, int):
        seconds = value // 1_000_000
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, (Decimal, datetime.date)):
        return str(value)
    return int(value) if isinstance(value, bool) else value
