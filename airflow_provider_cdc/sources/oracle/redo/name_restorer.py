"""Restores the names in redo statements that LogMiner could not resolve, because its dictionary is newer than the row.

Such a statement has columns ``"COL 1"``, ``"COL 2"`` .. and values in Oracle's internal format:

    insert into "UNKNOWN"."OBJ# 74858"("COL 1","COL 2") values (HEXTORAW('c102'),HEXTORAW('61'));

The numbers are those of the columns in the stored row. They equal the positions in the table's schema unless the table has other stored
columns: unused or formerly invisible ones, or hidden columns that Oracle adds for some types and defaults. So a row is restored only if
the table is known to have no such columns and all values fit their types; otherwise it is an error.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.core.remedy_commands import read_whole
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import MiningStrategy
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import INSERT, LAST_CHANGE, UPDATE
from airflow_provider_cdc.sources.oracle.redo.internal_format import is_known_format, stored_literal
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import LiteralKind, ParsedLiteral, UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.statement_parser import RedoStatement, read_statement
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.object_number_registry import is_unnamed
from airflow_provider_cdc.sources.oracle.schema.schema_versions import SchemaVersions
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StoredColumns, StoredFormats, StreamLookups

COLUMN_NUMBERS = (
    r'^\s*(?:insert into|update|delete from)\s+"[^"]*"\."[^"]*"\s*(?:\(|set |where )\s*"COL \d+"'
    r'|\b(?:select|set) "COL \d+"'
)
"""Matches a statement with numbers instead of column names."""
_STALE = re.compile(COLUMN_NUMBERS)
_INSERT = re.compile(r'\s*insert into "[^"]*"\."[^"]*"\(((?:"COL \d+",?)+)\)')
_NUMBER = re.compile(r"COL (\d+)")
_HEAD = re.compile(r'(\s*(?:insert into|update|delete from)\s+)"([^"]*)"\."([^"]*)"')
_LOBS = ("CLOB", "NCLOB", "BLOB")


def find_nameless_rows(names: pa.Array, at: npt.NDArray[np.int64], part: str) -> npt.NDArray[np.bool_]:
    """Mask of the rows for which LogMiner does not know the owner or the table's name.

    :param names: the distinct names
    :param at: per row, index into ``names``; -1 = NULL
    :param part: ``OWNER`` or ``NAME``
    """
    unnamed = [is_unnamed(name, "-") if part == "OWNER" else is_unnamed("-", name) for name in names.to_pylist()]
    of_row: npt.NDArray[np.bool_] = np.array([*unnamed, True], np.bool_)[at]
    return of_row


def columns_of(text: str) -> int | None:
    """Count the columns that an insert without names shows; ``None`` for any other text."""
    match = _INSERT.match(text)
    return match[1].count('"COL ') if match else None


def find_stale_rows(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Mask of the rows that belong to another version of their table than the one in LogMiner's dictionary."""
    status = rows.column("status").combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
    doubtful: npt.NDArray[np.bool_] = status != 0
    if not doubtful.any():
        return doubtful
    at = np.flatnonzero(doubtful)
    some = rows.take(pa.array(at))
    mismatch = pc.match_substring(some.column("info").fill_null(""), "version mismatch", ignore_case=True)
    numbered = pc.match_substring_regex(some.column("sql").fill_null(""), COLUMN_NUMBERS)
    doubtful[at] = pc.or_(mismatch, numbered).to_numpy()
    return doubtful


class NameRestorer:
    """Restores the names in the rows of committed transactions.

    :param versions: the tables' schemas by SCN
    :param lookups: gives the database's character sets and time zone, which the internal format depends on
    """

    def __init__(self, config: OracleConfig, versions: SchemaVersions, lookups: StreamLookups) -> None:
        self._strategy, self._lobs = config.log_mining_strategy, config.lob_enabled
        self._connector, self._versions, self._lookups = config.connector_name, versions, lookups
        self._stored: dict[int, StoredColumns | None] = {}

    def restore_names(self, rows: pa.Table) -> pa.Table | None:
        """Return the same rows with all names; ``None`` if no name was missing.

        :param rows: columns of :data:`..transactions.buffer.row_segments.ROWS`
        :raises SchemaConflict: a row cannot be restored with certainty, or ``log.mining.strategy`` is not ``hybrid``
        """
        sql = rows.column("sql").combine_chunks()
        sql = sql.combine_chunks() if isinstance(sql, pa.ChunkedArray) else sql
        numbers = rows.column("table").to_numpy()
        concerned = pc.fill_null(pc.match_substring_regex(sql, COLUMN_NUMBERS), False).to_numpy(zero_copy_only=False)
        for number in {int(n) for n in numbers}:
            if self._versions.by_object(number):
                concerned = concerned | (numbers == number)
        # an undo row shows neither the whole row nor, where it matters, the change that it undoes
        concerned = concerned & ~rows.column("rollback").to_numpy(zero_copy_only=False)
        if not concerned.any():
            return None
        self._stored.clear()
        texts = sql.to_pylist()
        scns, codes = rows.column("scn").to_numpy(), rows.column("code").to_numpy()
        changed = False
        for i in concerned.nonzero()[0].tolist():
            text = self._row(texts[i], int(codes[i]), int(numbers[i]), int(scns[i]))
            changed |= text != texts[i]
            texts[i] = text
        if not changed:
            return None
        return rows.set_column(rows.schema.get_field_index("sql"), rows.schema.field("sql"), pa.array(texts, sql.type))

    def _row(self, text: str | None, code: int, number: int, scn: int) -> str | None:
        if text is None:
            return text
        schema, _ = self._versions.find_schema(number, scn)
        head = _HEAD.match(text)
        numbered = _STALE.search(text) is not None
        name = (schema.id.namespace, schema.id.name)
        if not numbered and (head is None or (head[2], head[3]) == name):
            return text
        if self._strategy is not MiningStrategy.HYBRID:
            raise _refused(schema, scn, self._strategy, read_whole(self._connector, schema.id))
        try:
            if code > LAST_CHANGE or head is None:
                raise UnreadableRedo("it is a piece of a long value")
            if not numbered:
                return f'{head[1]}"{name[0]}"."{name[1]}"{text[head.end() :]}'
            return self._statement(read_statement(text), schema, number)
        except UnreadableRedo as e:
            raise _not_restored(schema, scn, str(e), read_whole(self._connector, schema.id)) from e

    # -- statements -------------------------------------------------------------------------------------------------------

    def _statement(self, statement: RedoStatement, schema: TableSchema, number: int) -> str:
        columns = [c for c in schema.columns if not c.declared.generated]
        self._certain(columns, number)
        new, where = _by_number(statement.new), _by_number(statement.where)
        full = new if statement.code == INSERT else where
        _complete(full, columns, insert=statement.code == INSERT)
        if any(column > len(columns) for column in new):
            raise UnreadableRedo(f"it has a column {max(new)}, but the table has {len(columns)} columns")
        formats = self._lookups.read_stored_formats()
        shown_new, shown_where = (_values(values, columns, formats) for values in (new, where))
        name = f'"{schema.id.namespace}"."{schema.id.name}"'
        if statement.code == INSERT:
            absent = {c.name: "NULL" for c in columns[len(full) :] if ColumnType.from_column(c).base not in _LOBS}
            shown_new = {**absent, **shown_new} if len(full) < len(columns) else shown_new
            names = ",".join(f'"{n}"' for n in shown_new)
            return f"insert into {name}({names}) values ({','.join(shown_new.values())});"
        conditions = " and ".join(f'"{n}" IS NULL' if v == "NULL" else f'"{n}" = {v}' for n, v in shown_where.items())
        if statement.code == UPDATE:
            if not shown_new:  # it sets LOBs only, which are not captured
                first = next(iter(shown_where.items()))
                shown_new = dict([first])
            sets = ", ".join(f'"{n}" = {v}' for n, v in shown_new.items())
            return f"update {name} set {sets} where {conditions};"
        return f"delete from {name} where {conditions};"

    def _certain(self, columns: list[Column], number: int) -> None:
        """Check that column numbers are positions in the schema.

        :raises UnreadableRedo: the table may have other stored columns than those of its schema
        """
        for column in columns:
            type_ = ColumnType.from_column(column)
            if type_.base in _LOBS and not self._lobs:
                continue
            if not is_known_format(type_):
                raise UnreadableRedo(
                    f"column {column.name} is {type_.ddl_expression}, whose internal format is unknown"
                )
        if number not in self._stored:
            self._stored[number] = self._versions.find_stored_columns(number)
        stored = self._stored[number]
        if stored is not None and not stored.plain:
            raise UnreadableRedo(
                "the table has hidden, unused or invisible columns, so that column numbers are ambiguous"
            )
        for column in columns:
            if (
                column.nullable
                and column.declared.default is not None
                and (stored is None or column.name not in stored.names)
            ):
                raise UnreadableRedo(
                    f"the default of column {column.name} may have added a hidden column, and the catalog no "
                    "longer shows it"
                )


def _by_number(literals: dict[str, ParsedLiteral]) -> dict[int, ParsedLiteral]:
    """Column number → value."""
    by_number = {}
    for name, literal in literals.items():
        if name == "ROWID":
            continue
        numbered = _NUMBER.fullmatch(name)
        if numbered is None or int(numbered[1]) < 1:
            raise UnreadableRedo(f"it has a column {name} besides numbered columns")
        by_number[int(numbered[1])] = literal
    return by_number


def _complete(literals: dict[int, ParsedLiteral], columns: list[Column], *, insert: bool) -> None:
    """Check that a statement has values for all columns.

    :raises UnreadableRedo: it has not
    """
    needed = {i for i, c in enumerate(columns, 1) if ColumnType.from_column(c).base not in _LOBS}
    if needed <= set(literals) <= set(range(1, len(columns) + 1)):
        return
    first_ones = insert and set(literals) == set(range(1, len(literals) + 1)) and len(literals) < len(columns)
    # NULLs at the end of a row are not stored; but a NULL before them may be of an unused column
    nulls = any(v.kind is LiteralKind.NULL or (v.kind is LiteralKind.CALL and not v.text) for v in literals.values())
    if first_ones and not nulls and all(c.nullable for c in columns[len(literals) :]):
        return
    shown = ", ".join(map(str, sorted(literals)))
    raise UnreadableRedo(f"it has the columns {shown or '(none)'}, but the table had {len(columns)} columns")


def _values(values: dict[int, ParsedLiteral], columns: list[Column], formats: StoredFormats) -> dict[str, str]:
    """Column name → literal, in the order of the columns, without LOBs."""
    texts = {}
    for number, column in enumerate(columns, 1):
        type_ = ColumnType.from_column(column)
        literal = values.get(number)
        if literal is None or type_.base in _LOBS:
            continue
        if literal.kind is LiteralKind.CALL and literal.name == "HEXTORAW":
            if not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", literal.text):
                raise UnreadableRedo(f"{literal} is not hexadecimal")
            data = bytes.fromhex(literal.text)
            try:
                texts[column.name] = stored_literal(data, type_, formats) if data else "NULL"
            except UnreadableRedo as e:
                raise UnreadableRedo(f"column {number} does not fit {column.name} {type_.ddl_expression}: {e}") from e
        elif literal.kind is LiteralKind.NULL:
            texts[column.name] = "NULL"
        else:
            raise UnreadableRedo(f"column {number} is {literal}, not a value in internal format")
    return texts


# -- errors -------------------------------------------------------------------------------------------------------------------------


def _refused(schema: TableSchema, scn: int, strategy: MiningStrategy, again: str) -> SchemaConflict:
    others = " or ".join(s.value for s in (MiningStrategy.HYBRID, MiningStrategy.REDO_LOG_CATALOG) if s is not strategy)
    return SchemaConflict(
        f"A change of {schema.id} is older than the table's current definition: LogMiner's dictionary cannot name its columns.",
        where=f"{schema.id}, SCN {scn}",
        safe="Everything before this change is captured.",
        remedy=f"set log.mining.strategy={others} and run the capture again, or snapshot the whole table: `{again}`",
    )


def _not_restored(schema: TableSchema, scn: int, why: str, again: str) -> SchemaConflict:
    return SchemaConflict(
        f"A change of {schema.id} cannot be read with the definition that the table had at that time: {why}.",
        where=f"{schema.id}, SCN {scn}",
        safe="Everything before this change is captured.",
        remedy="set log.mining.strategy=redo_log_catalog and run the capture again, or snapshot the whole table: "
        f"`{again}`",
    )
