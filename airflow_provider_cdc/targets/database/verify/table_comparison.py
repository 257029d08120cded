"""Compares the rows that a table ought to have with those that it has, a chunk of keys at a time.

Expected rows are written into a table of the session's own with the columns of the target, in the way in which the apply writes, and both are read by one statement:
so values are compared as this database keeps them, whatever its types are. Where the database can tell by their bytes which rows differ, only those are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingTable, TargetDialect, execute_sql
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseColumn, DatabaseTargetTable
from airflow_provider_cdc.targets.database.verify.differing_key_writer import DifferingKeys
from airflow_provider_cdc.targets.database.verify.expected_rows import ExpectedChunk, ExpectedRows
from airflow_provider_cdc.verify.verification_report import TableVerification

EXAMPLES: Final = 5
"""Rows that a result names."""
_STAGE: Final = "cdc_verify"
_NUMBER: Final = DatabaseColumn("cdc row", Column(name="cdc row", type="int32", nullable=False))
"""Column of the session's own table with the number of the expected row."""
_FETCHED: Final = 5_000
_TOGETHER: Final = 400
"""Columns of both sides that one statement reads: databases have a limit for those of a result."""
Row = Sequence[Any]


class RowNotStorable(Exception):
    """The table refuses a row that it ought to have."""


@dataclass(slots=True)
class TableComparison:
    """The comparison of a table, in a transaction that sees one state of it.

    :param there: the table as it is; it has all columns
    :param values: whether examples show values; they may be personal data
    :param seen: file for the keys that were found, which is not there yet
    """

    dialect: TargetDialect
    connection: sa.Connection
    table: DatabaseTargetTable
    there: ExistingTable
    result: TableVerification
    keys: DifferingKeys
    values: bool
    seen: str
    _names: list[str] = field(init=False)
    _columns: dict[str, str] = field(init=False)
    _stage: DatabaseTargetTable = field(init=False)
    _create_statement: str = field(init=False, default="")
    _unequal: str = field(init=False, default="")
    """Condition for rows that may differ; empty if the database cannot tell, or the table may have several rows of a key."""

    def __post_init__(self) -> None:
        self._names = [column.name for column in self.table.fields]
        self._columns = {name: self.there.columns[name].type for name in self._names}
        name = self.dialect.session_table(_STAGE)
        self._stage = DatabaseTargetTable(self.table.topic, name, (*self.table.fields, _NUMBER))
        quoted = {name: self.dialect.quote_name(name) for name in self._names}
        conditions = [
            self.dialect.build_inequality(f"s.{quoted[name]}", f"t.{quoted[name]}", self._columns[name])
            for name in self._names
        ]
        if all(conditions) and {*self.there.key} == {field.name for field in self.table.key_columns}:
            self._unequal = " OR ".join(map(str, conditions))

    def compare(self, expected: ExpectedRows) -> None:
        """Add the differences to the result.

        :raises CannotHold: no row can be compared any more
        """
        matched = sum(map(self._chunk, expected.read_chunks()))
        self.result.target = self._count()
        # a database may take two keys for one
        if matched != self.result.target or any(
            field.name in self.result.differing for field in self.table.key_columns
        ):
            self._surplus(expected)

    @contextlib.contextmanager
    def open_session_table(self) -> Iterator[None]:
        """Open the session's own table. Some databases end the transaction when they make it: the compared rows have to be read after that."""
        columns = f"{self.dialect.format_column_list(self._names)}, 0 AS {self.dialect.quote_name(_NUMBER.name)}"
        self._create_statement = self.dialect.make_session_table(
            self._stage.name, columns, self.dialect.format_table_name(self.table.name)
        )
        execute_sql(self.connection, self._create_statement)
        self.connection.commit()
        try:
            yield
        finally:
            if not self.connection.invalidated:
                self.connection.rollback()
                execute_sql(self.connection, self.dialect.drop_session_table(self._stage.name))
                self.connection.commit()

    # -- rows of the source -------------------------------------------------------------------------------------------

    def _chunk(self, chunk: ExpectedChunk) -> int:
        """Compare some rows; how many rows of the table have their keys."""
        self._fill(chunk)
        missing, matched, numbers = 0, 0, set[int]()
        for number, source, target in self._both():
            if target[0] is None:
                missing += 1
                self._differs("missing", chunk, number, there=0)
                continue
            matched += 1
            if number in numbers:  # a table that has no key may have a row twice
                self._differs("surplus", chunk, number, there=2)
                continue
            numbers.add(number)
            if source != target and (columns := self._unlike(source, target, chunk.unknown[number])):
                self._differs("different", chunk, number, columns, (source, target))
        self.result.source += chunk.rows.num_rows
        for names in filter(None, chunk.unknown):
            for name in names:
                self.result.unknown[name] = self.result.unknown.get(name, 0) + 1
        return chunk.rows.num_rows - missing if self._unequal else matched

    def _fill(self, chunk: ExpectedChunk) -> None:
        for statement in self.dialect.empty_session_table(self._stage.name, self._create_statement):
            execute_sql(self.connection, statement)
        numbers = pa.array(range(chunk.rows.num_rows), pa.int32())
        point = self.connection.begin_nested()
        try:
            self.dialect.insert(self.connection, self._stage, chunk.rows.append_column(_NUMBER.name, numbers))
        except sa.exc.DBAPIError as e:
            if self.dialect.is_transient(e):
                raise
            point.rollback()
            raise RowNotStorable(f"it cannot store rows of the source: {e.orig}") from e
        point.commit()

    def _both(self) -> Iterator[tuple[int, Row, Row]]:
        """Yield the number of each expected row that may differ, its values, and those of the table's row of the same key; they are ``None`` if there is none."""
        width = len(self._names)
        if width <= _TOGETHER:
            read: Iterator[Row] = self._joined(self._names)
        else:
            parts = [self._names[at : at + _TOGETHER] for at in range(0, width, _TOGETHER)]
            read = map(_side_by_side, zip(*(sorted(self._joined(names), key=_number) for names in parts), strict=True))
        for row in read:
            yield int(row[0]), row[1 : 1 + width], row[1 + width :]

    def _joined(self, names: Sequence[str]) -> Iterator[Row]:
        """Read the number of each expected row, its values of some columns, and those of the table's row of the same key."""
        quote = self.dialect.quote_name
        sides = [self._read(f"{side}.{quote(name)}", name) for side in "st" for name in names]
        condition = f" WHERE {self._unequal}" if self._unequal else ""
        return self._rows(f"SELECT s.{quote(_NUMBER.name)}, {', '.join(sides)} {self._from('LEFT JOIN')}{condition}")

    def _from(self, join: str) -> str:
        quote = self.dialect.quote_name
        same = " AND ".join(f"t.{quote(column.name)} = s.{quote(column.name)}" for column in self.table.key_columns)
        stage, table = map(self.dialect.format_table_name, (self._stage.name, self.table.name))
        return f"FROM {stage} s {join} {table} t ON {same}"

    def _unlike(self, source: Row, target: Row, unknown: frozenset[str]) -> list[str]:
        """List the columns in which two rows differ."""
        pairs = zip(self._names, source, target, strict=True)
        # a value that is not a number is not even equal to itself
        return [name for name, a, b in pairs if a != b and repr(a) != repr(b) and name not in unknown]

    # -- rows of the table --------------------------------------------------------------------------------------------

    def _surplus(self, expected: ExpectedRows) -> None:
        """Rows of the table whose key no expected row has."""
        names = [column.name for column in self.table.key_columns]
        key = ", ".join(self._read(self.dialect.quote_name(name), name) for name in names)
        found = ", ".join(self._read(f"t.{self.dialect.quote_name(name)}", name) for name in names)
        with contextlib.closing(sqlite3.connect(self.seen, isolation_level=None)) as seen_keys:
            for statement in (
                "PRAGMA journal_mode = OFF",
                "PRAGMA synchronous = OFF",
                "CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID",
                "BEGIN",
            ):
                seen_keys.execute(statement)
            for chunk in expected.read_chunks():
                self._fill(chunk)
                digests = ((_digest(row),) for row in self._rows(f"SELECT {found} {self._from('JOIN')}"))
                seen_keys.executemany("INSERT OR IGNORE INTO seen (key) VALUES (?)", digests)
            for row in self._rows(f"SELECT {key} FROM {self.dialect.format_table_name(self.table.name)}"):
                if seen_keys.execute("SELECT 1 FROM seen WHERE key = ?", (_digest(row),)).fetchone() is None:
                    self.result.surplus += 1
                    self.keys.add_surplus_key(row)
                    self._example("surplus", dict(zip(names, map(str, row), strict=True)))

    def _count(self) -> int:
        statement = f"SELECT COUNT(*) FROM {self.dialect.format_table_name(self.table.name)}"
        return int(next(self._rows(statement))[0])

    def _rows(self, statement: str) -> Iterator[Row]:
        options = {"no_parameters": True, "stream_results": True, "max_row_buffer": _FETCHED}
        with self.connection.exec_driver_sql(statement, execution_options=options) as result:
            for part in result.partitions(_FETCHED):
                yield from map(tuple, part)

    def _read(self, sql: str, name: str) -> str:
        return self.dialect.build_exact_column(sql, self._columns[name])

    # -- differences --------------------------------------------------------------------------------------------------

    def _differs(
        self,
        kind: str,
        chunk: ExpectedChunk,
        number: int,
        columns: Sequence[str] = (),
        both: tuple[Row, Row] | None = None,
        *,
        there: int = 1,
    ) -> None:
        """:param there: rows that the table has of the key"""
        result = self.result
        setattr(result, kind, getattr(result, kind) + 1)
        self.keys.add_expected_key(chunk.rows, number, there=there)
        for name in columns:
            result.differing[name] = result.differing.get(name, 0) + 1
        if len(result.examples) < EXAMPLES:
            row = chunk.rows.slice(number, 1)
            key = {column.name: sql_literals.format_first_value(row[column.name]) for column in self.table.key_columns}
            self._example(kind, key, columns, both)

    def _example(
        self, kind: str, key: dict[str, str], columns: Sequence[str] = (), both: tuple[Row, Row] | None = None
    ) -> None:
        if len(self.result.examples) >= EXAMPLES:
            return
        example: dict[str, Any] = {"key": key, "difference": kind}
        if columns:
            example["columns"] = list(columns)
        if self.values and both is not None:
            for side, row in zip(("source", "target"), both, strict=True):
                example[side] = {name: str(row[self._names.index(name)]) for name in columns}
        self.result.examples.append(example)


def _digest(key: Row) -> bytes:
    return hashlib.blake2b(repr(tuple(key)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _number(row: Row) -> int:
    return int(row[0])


def _side_by_side(parts: Sequence[Row]) -> Row:
    """Arrange a row as one statement would have it: its number, the columns of one side, those of the other one."""
    halves = [(part[1 : 1 + len(part) // 2], part[1 + len(part) // 2 :]) for part in parts]
    return (
        parts[0][0],
        *(value for half, _ in halves for value in half),
        *(value for _, half in halves for value in half),
    )
