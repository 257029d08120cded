"""The dialect interface: the operations that the sink needs of a database, in arrays and SQL."""

from __future__ import annotations

import abc
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects.known_structures import KnownStructures
from airflow_provider_cdc.targets.database.schema.target_table import (
    PREVIOUS,
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.type_widening import is_wider_type
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column that a table has.

    :param type: as the database calls it; empty if SQLAlchemy does not know it
    """

    name: str
    type: str
    nullable: bool
    default: str | None = None


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """A table that is there.

    :param columns: by their names
    :param key: the columns of its primary key
    :param unique: whether other columns than those of the key have to be unique, too
    :param engine: of a database with several, if it has no transactions
    :param self_reference: whether its rows may refer to others of it by a foreign key that is checked before the transaction ends
    """

    columns: dict[str, ExistingColumn]
    key: tuple[str, ...] = ()
    unique: bool = False
    engine: str = ""
    self_reference: bool = False

    def called_as(self, table: DatabaseTargetTable, same_column: Callable[[str], str]) -> ExistingTable:
        """Return the same with the names that a topic has for its columns, where the database takes both as one."""
        field_names = {same_column(field.name): field.name for field in table.fields}
        called = {name: field_names.get(same_column(name), name) for name in self.columns}
        columns = {called[name]: replace(column, name=called[name]) for name, column in self.columns.items()}
        return replace(self, columns=columns, key=tuple(called.get(name, name) for name in self.key))

    def takes_others(self, table: DatabaseTargetTable) -> bool:
        """Check whether a row of a table may be taken for another one that has not its key: something else has to be unique there."""
        return self.unique or set(self.key) != {field.name for field in table.key_columns}


class TargetDialect(abc.ABC):
    """SQL of one kind of database. It opens no connection.

    :param zone: in which moments are written to a database that has no type for them

    Names in SQL are always quoted: a name that is not to be quoted is folded first, as the database would fold it (:meth:`fold_name`), which means the same table and
    cannot break on a reserved word.
    """

    name: ClassVar[str]
    """As SQLAlchemy calls it."""
    LONGEST: ClassVar[int]
    """Greatest length of a name, as :meth:`length_of` counts."""
    SYSTEM_COLUMNS: ClassVar[frozenset[str]] = frozenset()
    """Columns that every table has already, as :meth:`same_column` has them."""
    DDL_IN_TRANSACTION: ClassVar[bool] = False
    """Whether DDL is undone by a rollback; where it is not, it is done before the transaction, and may be done again."""
    CHANGES: ClassVar[bool] = True
    """Whether types of columns can be changed."""
    MOMENTS: ClassVar[bool] = True
    """True if there is a type for moments; otherwise they are written as times in a zone."""
    CHANGES_KEYS: ClassVar[bool] = True
    """Whether keys of tables are changed; otherwise people do it."""
    LATE_NOT_NULL: ClassVar[bool] = True
    """Whether a column can be made to have a value when its rows have got one."""
    DEFER: ClassVar[tuple[str, ...]] = ()
    """Statements for :meth:`defer_constraints`."""
    AT_ONCE: ClassVar[tuple[str, ...]] = ()
    """The same for constraints that are not to wait for the end of the transaction; none if the database has no such constraints."""
    REFERENCES: ClassVar[str] = ""
    """Query for foreign keys that are checked after each statement: schema and name of a table that refers to another one, those of that, and the schema of names
    without one."""
    UNLESS_DEFERRED: ClassVar[str] = ""
    """Condition of that query that leaves out those that are checked when the transaction ends."""
    TRANSIENT: ClassVar[frozenset[str]] = frozenset()
    """Codes of errors after which the same transaction may succeed: deadlocks, locks that were waited for too long, servers that shut down."""

    LOCKED: ClassVar[frozenset[str]] = frozenset()
    """Codes of errors that end the wait for a lock of another session."""
    PATIENCE: ClassVar[str] = ""
    """Statement for :meth:`limit_waiting`; empty if the database waits for no lock without end."""

    def __init__(self, zone: str = "UTC") -> None:
        self.zone, self.longest = zone, self.LONGEST
        self.structures = KnownStructures()

    def detect_features(self, connection: sa.Connection) -> None:  # noqa: B027 - most databases have nothing of the kind
        """Detect features that not all databases of the kind have: types of extensions."""

    # -- names --------------------------------------------------------------------------------------------------------

    def fold_name(self, name: str) -> str:
        """Return the form that the database gives to a name without quotes."""
        return name

    def length_of(self, name: str) -> int:
        """Return the length of a name, as the database counts it."""
        return len(name.encode())

    def same_table(self, name: str) -> str:
        """By which name the database looks a table up: tables are one for which it is the same."""
        return name

    def same_column(self, name: str) -> str:
        """Return the same for the columns of a table."""
        return name

    def quote_name(self, name: str) -> str:
        """Quote a name in SQL."""
        return '"' + name.replace('"', '""') + '"'

    def format_table_name(self, name: TargetTableName) -> str:
        """Format the name of a table in SQL."""
        return ".".join(map(self.quote_name, filter(None, (name.schema, name.table))))

    def format_column_list(self, names: Iterable[str]) -> str:
        """Columns in SQL."""
        return ", ".join(map(self.quote_name, names))

    # -- tables -------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        """Return the type of a column.

        :param key: whether the column is part of a key: some databases want a longest length of those
        """

    def build_column_type(self, field: DatabaseColumn) -> str:
        """Return the type of a column in DDL, with the collation that a key needs: no two keys of the source are equal in it."""
        return self.type_of(kind_of(field.column), key=field.key)

    def build_column_definition(self, field: DatabaseColumn) -> str:
        """Format a column in DDL."""
        null = " NOT NULL" if field.is_required else ""
        return f"{self.quote_name(field.name)} {self.build_column_type(field)}{self.default_of(field)}{null}"

    def refuse_merging(self, connection: sa.Connection, table: DatabaseTargetTable, rebuild: str) -> None:
        """Refuse a table that is there and takes keys as equal which are not.

        :param rebuild: the command that builds it again
        :raises TargetError: it does
        """
        return

    def build_create_table(self, table: DatabaseTargetTable) -> str:
        """Build the statement that makes a table."""
        parts = [self.build_column_definition(field) for field in table.fields]
        if table.key_columns:
            parts.append(f"PRIMARY KEY ({self.format_column_list(field.name for field in table.key_columns)})")
        return f"CREATE TABLE {self.format_table_name(table.name)} ({', '.join(parts)})"

    def create_table(self, connection: sa.Connection, table: DatabaseTargetTable) -> None:
        """Make a table."""
        execute_sql(connection, self.build_create_table(table))

    def alter_table(self, connection: sa.Connection, statement: str) -> None:
        """Add columns, by one of the statements of :meth:`build_add_columns`."""
        execute_sql(connection, statement)

    def build_add_columns(self, table: DatabaseTargetTable, fields: Sequence[DatabaseColumn]) -> list[str]:
        """Build the statements that add columns."""
        return [
            f"ALTER TABLE {self.format_table_name(table.name)} ADD COLUMN {self.build_column_definition(field)}"
            for field in fields
        ]

    def build_change_column(
        self, table: DatabaseTargetTable, there: ExistingColumn, type_: str, *, nullable: bool
    ) -> str:
        """Build the statement that gives a column a wider type, or lets it be NULL; see :attr:`CHANGES`.

        :param type_: the new type, or the one that it has
        """
        raise NotImplementedError(f"{self.name} changes no columns")

    def digits_added(self, table: DatabaseTargetTable, field: DatabaseColumn) -> str | None:
        """Build the statement that gives the texts of numbers or times all digits that these have now; ``None`` if they are no texts."""
        return None

    def changes_key(self, connection: sa.Connection, table: DatabaseTargetTable) -> bool:
        """Check whether the key of a table is changed without a loss of changes that people have made."""
        return self.CHANGES_KEYS

    def key_change(self, connection: sa.Connection, table: DatabaseTargetTable, there: ExistingTable) -> list[str]:
        """Build the statements that give a table another primary key."""
        name = sa.inspect(connection).get_pk_constraint(table.name.table, schema=table.name.schema)["name"]
        drop = f"DROP CONSTRAINT {self.quote_name(str(name))}" if name else "DROP PRIMARY KEY"
        may_be_null = [
            field for field in table.key_columns if (c := there.columns.get(field.name)) is None or c.nullable
        ]
        changes = [
            drop,
            *map(self.not_null, may_be_null),
            f"ADD PRIMARY KEY ({self.format_column_list(f.name for f in table.key_columns)})",
        ]
        return [f"ALTER TABLE {self.format_table_name(table.name)} {change}" for change in changes]

    def not_null(self, field: DatabaseColumn) -> str:
        """Build the change of a table by which a column may not be NULL any more."""
        return f"ALTER COLUMN {self.quote_name(field.name)} SET NOT NULL"

    def build_rename_column(self, table: DatabaseTargetTable, old: str, new: str) -> str:
        """Build the statement that renames a column."""
        return f"ALTER TABLE {self.format_table_name(table.name)} RENAME COLUMN {self.quote_name(old)} TO {self.quote_name(new)}"

    def build_assignments(self, table: DatabaseTargetTable, values: Mapping[str, str]) -> list[str]:
        """Statements that give all rows of a table new values in some columns.

        :param values: column → a constant in SQL, or the quoted name of the column whose value of before it gets
        """
        return [self._assignment(table, values)] if values else []

    def _assignment(self, table: DatabaseTargetTable, values: Mapping[str, str]) -> str:
        sets = ", ".join(f"{self.quote_name(name)} = {value}" for name, value in values.items())
        return f"UPDATE {self.format_table_name(table.name)} SET {sets}"

    def find_wider_type(self, there: ExistingColumn, field: DatabaseColumn) -> str | None:
        """Find the type that has room for all values of a column.

        ``None`` if the column's own type has it, or no type does.
        """
        required_type = self.type_of(kind_of(field.column), key=field.key)
        return required_type if is_wider_type(there.type, required_type) else None

    def default_of(self, field: DatabaseColumn) -> str:
        """Format the default of a column, as the source has it; empty if it has none that is a plain value."""
        declared = field.column.declared
        if declared.default is None or declared.default_is_expression or field.key:
            return ""
        text = self.build_default(kind_of(field.column), declared.default)
        return f" DEFAULT {text}" if text is not None else ""

    def build_default(self, kind: ValueKind, text: str) -> str | None:
        """Format a default in DDL; ``None`` if the database cannot have it.

        :param text: as the source writes it
        """
        if kind.name in ("int8", "int16", "int32", "int64", "float", "double", "decimal", "number", "year"):
            return text if text.strip("'").lstrip("+-").replace(".", "", 1).isdigit() else None
        if kind.name == "bool":
            return self.format_boolean(text.strip("b'") not in ("0", "", "false"))
        if kind.name in ("text", "enum", "set"):
            return "'" + text.replace("'", "''") + "'"
        if kind.name in ("date", "time", "timestamp") and not text.startswith("0000-"):
            return f"'{text}'" if re.fullmatch(r"[\d :.-]+", text) else None
        return None

    def build_cast(self, text: str, type_: str) -> str:
        """Cast a text in SQL to a type."""
        return f"CAST({text} AS {type_})"

    def format_boolean(self, value: bool) -> str:
        """Format a truth value in SQL."""
        return "TRUE" if value else "FALSE"

    def find_table(self, connection: sa.Connection, name: TargetTableName) -> ExistingTable | None:
        """Inspect a table as it is; ``None`` if there is none."""
        inspector = sa.inspect(connection)
        at: dict[str, Any] = {"table_name": name.table, "schema": name.schema}
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Did not recognize type")  # it is empty here
                columns = inspector.get_columns(**at)
        except sa.exc.NoSuchTableError:
            return None
        reflected = (
            columns,
            inspector.get_pk_constraint(**at),
            inspector.get_unique_constraints(**at),
            inspector.get_indexes(**at),
        )
        there = self.build_existing_table(connection, *reflected)
        engine = self.engine_without_transactions(inspector, name)
        return replace(there, engine=engine, self_reference=self.refers_to_itself(inspector, name))

    def build_existing_table(
        self,
        connection: sa.Connection,
        columns: Sequence[Any],
        key: Any,
        constraints: Sequence[Any],
        indexes: Sequence[Any],
    ) -> ExistingTable:
        """Build a table from what SQLAlchemy's inspector returns."""
        key_names = tuple(map(self.column_name, key["constrained_columns"]))
        unique = {tuple(map(self.column_name, constraint["column_names"])) for constraint in constraints}
        unique |= {
            tuple(self.column_name(str(name)) for name in index["column_names"])
            for index in indexes
            if index.get("unique")
        }
        existing = {
            name: ExistingColumn(name, _type_text(c["type"], connection), bool(c["nullable"]), c.get("default"))
            for c in columns
            for name in [self.column_name(c["name"])]
        }
        return ExistingTable(existing, key_names, any(set(names) != set(key_names) for names in unique))

    def column_name(self, name: str) -> str:
        """Return the name of a column, given the one that SQLAlchemy found."""
        return name

    def engine_without_transactions(self, inspector: Any, name: TargetTableName) -> str:
        """Return the engine of a table, if it has no transactions.

        Rows of a transaction that is undone would stay there, and the marker would not.
        """
        return ""

    def inspect_table(self, connection: sa.Connection, table: DatabaseTargetTable) -> ExistingTable | None:
        """Inspect a table as it is, with its columns as the topic calls them; ``None`` if there is none."""
        if not self.structures.is_checked(table.name):
            self.structures.check([table.name], self.read_stamps(connection, [table.name]))
        there: ExistingTable | None = self.structures.find(table.name, "table")
        if there is None and (there := self.find_table(connection, table.name)) is not None:
            self.structures.keep(table.name, "table", there)
        return None if there is None else there.called_as(table, self.same_column)

    def check_structures(self, connection: sa.Connection, tables: Iterable[DatabaseTargetTable]) -> None:
        """Compare what is known of tables with the catalog, and read those that have changed: for all of them with a few statements."""
        names = list(dict.fromkeys(table.name for table in tables))
        self.structures.check(names, stamps := self.read_stamps(connection, names))
        unknown = [name for name in names if name in stamps and self.structures.find(name, "table") is None]
        for name, there in self.find_tables(connection, unknown).items():
            self.structures.keep(name, "table", there)

    def read_stamps(self, connection: sa.Connection, names: Sequence[TargetTableName]) -> dict[TargetTableName, str]:
        """Read a text for each table that is another one after each change of its structure.

        Tables that do not exist have none; databases without such a text return none, and are asked about each table each time.
        """
        return {}

    def find_tables(
        self, connection: sa.Connection, names: Sequence[TargetTableName]
    ) -> dict[TargetTableName, ExistingTable]:
        """Inspect tables together, where that takes fewer statements than one after the other; none otherwise."""
        return {}

    def refers_to_itself(self, inspector: Any, name: TargetTableName) -> bool:
        """Check whether rows of a table may refer to others of it by a foreign key that is checked before the transaction ends.

        Then they are written in their order.
        """
        return refers_to(name, inspector.get_foreign_keys(name.table, schema=name.schema))

    # -- rows ---------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        """Insert rows. Their columns are some of the table's, by its names; a key that is there already is an error."""

    @abc.abstractmethod
    def upsert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, unique: bool) -> None:
        """Insert rows whose key is not there, and change those whose key is; each key once. A row that has another one's unique value is an error.

        :param unique: see :meth:`ExistingTable.takes_others`
        """

    def update(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        """Change rows whose key is there; each key once. Others are a no-op."""
        key = {field.name: field.name for field in table.key_columns}
        if rest := [name for name in rows.column_names if name not in key]:
            self._update(connection, table, rows, key, rest)

    def move_row(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        """Change a row and its key; a no-op if there is none with the key that it had before.

        :param rows: one, with the columns of :data:`~airflow_provider_cdc.targets.database.schema.target_table.PREVIOUS` besides its own
        """
        before = {field.name: PREVIOUS.format(at) for at, field in enumerate(table.key_columns)}
        rest = [name for name in rows.column_names if name not in before.values()]
        self._update(connection, table.with_previous_key, rows, before, rest)

    @abc.abstractmethod
    def _update(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        rows: pa.Table,
        key: Mapping[str, str],
        rest: Sequence[str],
    ) -> None:
        """Change rows.

        :param key: column of the table → the column of ``rows`` that it is found by
        :param rest: columns that are changed
        """

    @abc.abstractmethod
    def delete(self, connection: sa.Connection, table: DatabaseTargetTable, keys: pa.Table) -> None:
        """Delete the rows of some keys; one that is not there is a no-op."""

    def delete_all_rows(self, connection: sa.Connection, table: DatabaseTargetTable) -> None:
        """Delete all rows, in the transaction."""
        execute_sql(connection, f"DELETE FROM {self.format_table_name(table.name)}")

    def empty_table(self, connection: sa.Connection, table: DatabaseTargetTable, *, least_bytes: int = 0) -> None:
        """Delete all rows, in the transaction, by the cheapest way that leaves nothing else changed.

        :param least_bytes: size from which on readers may have to wait until the transaction ends
        """
        self.delete_all_rows(connection, table)

    def hold_rows(self, connection: sa.Connection, table: DatabaseTargetTable) -> None:  # noqa: B027 - most databases keep the rows
        """Have a transaction that reads a table see its rows until it ends, whatever :meth:`empty_table` does elsewhere. Called before it has read anything."""

    def defer_constraints(self, connection: sa.Connection, at_once: bool = False) -> None:
        """Have foreign keys checked at the end of the transaction, or not at all, as far as the database can do that: tables are written one after the other.

        :param at_once: check them, and other deferred constraints, with each statement, so that the table is known that breaks one
        """
        for statement in self.AT_ONCE if at_once else self.DEFER:
            execute_sql(connection, statement)

    def limit_waiting(self, connection: sa.Connection) -> None:
        """Limit the time for which statements of the transaction wait for a table that another session has locked."""
        if self.PATIENCE:
            execute_sql(connection, self.PATIENCE)

    def is_lock_timeout(self, error: sa.exc.DBAPIError) -> bool:
        """Return whether a lock of another session was waited for too long."""
        return self.extract_error_code(error) in self.LOCKED

    # -- comparisons --------------------------------------------------------------------------------------------------

    STEADY: ClassVar[str | None] = "REPEATABLE READ"
    """Isolation level of a transaction that sees one state of the database all the time; ``None``: every transaction does."""

    def not_comparable(self, connection: sa.Connection, rebuild: str) -> tuple[str, str] | None:
        """Return why tables of this database cannot be compared, and the remedy; ``None`` if they can.

        :param rebuild: the command that builds tables again
        """
        return None

    def session_table(self, name: str) -> TargetTableName:
        """Return the name of a table that only the session has. It outlives transactions: some databases end one when it is made."""
        return TargetTableName(name)

    def make_session_table(self, name: TargetTableName, columns: str, table: str) -> str:
        """Build the statement that makes such a table, empty, by columns of another one.

        :param columns: in SQL
        :param table: in SQL
        """
        return f"CREATE TEMPORARY TABLE {self.format_table_name(name)} AS SELECT {columns} FROM {table} WHERE 1 = 0"

    def drop_session_table(self, name: TargetTableName) -> str:
        """Build the statement that drops it."""
        return f"DROP TABLE {self.format_table_name(name)}"

    def empty_session_table(self, name: TargetTableName, statement: str) -> list[str]:
        """Build the statements by which it is empty again, and takes no more room than a new one, within a transaction.

        :param statement: the statement that has made it
        """
        return [f"DELETE FROM {self.format_table_name(name)}"]

    def build_exact_column(self, column: str, type_: str) -> str:
        """Format a column in SQL, in a form in which the driver gives every value exactly.

        :param type_: as of :class:`ExistingColumn`
        """
        return column

    def build_inequality(self, column: str, other: str, type_: str) -> str | None:
        """Build a condition in SQL that is true at least for all values of two columns of a type that the driver gives as different ones; ``None`` if there is none.

        :param type_: as of :class:`ExistingColumn`
        """
        return None

    # -- errors -------------------------------------------------------------------------------------------------------

    def is_transient(self, error: sa.exc.DBAPIError) -> bool:
        """Check whether the same transaction may succeed in a while."""
        return bool(error.connection_invalidated) or self.extract_error_code(error) in self.TRANSIENT

    def extract_error_code(self, error: sa.exc.DBAPIError) -> str:
        """Return the database's own code of an error."""
        arguments: Any = getattr(error.orig, "args", ())
        return str(getattr(error.orig, "sqlstate", None) or (arguments[0] if arguments else ""))


def execute_sql(connection: sa.Connection, statement: str | bytes) -> None:
    """Run SQL as it is: colons and percent signs of names and defaults mean nothing.

    :param statement: bytes if the driver takes them, for values that are no text
    """
    connection.exec_driver_sql(cast(str, statement), execution_options={"no_parameters": True})


def wrap_driver_error(connection: sa.Connection, statement: str, error: Any) -> Any:
    """Wrap an error of the driver as SQLAlchemy raises it, for calls that do not pass through SQLAlchemy."""
    base = connection.dialect.loaded_dbapi.Error
    lost = connection.dialect.is_disconnect(error, connection.connection, None)
    return sa.exc.DBAPIError.instance(
        statement, None, error, base, connection_invalidated=lost, dialect=connection.dialect
    )


def refers_to(name: TargetTableName, foreign_keys: Iterable[Any]) -> bool:
    """Check whether one of some foreign keys, as SQLAlchemy's inspector returns them, is to a table and is not deferrable."""
    return any(
        foreign_key["referred_table"] == name.table and not foreign_key["options"].get("deferrable")
        for foreign_key in foreign_keys
    )


def _type_text(type_: Any, connection: sa.Connection) -> str:
    return "" if isinstance(type_, sa.types.NullType) else str(type_.compile(dialect=connection.dialect))


def in_key_order(table: DatabaseTargetTable, rows: pa.Table) -> pa.Table:
    """Rows sorted by their keys: a database finds them with less work. Only where it does not matter which one is written first."""
    names = [field.name for field in table.key_columns]
    types = [rows[name].type for name in names]
    if any(hasattr(type_, "num_fields") and type_.num_fields for type_ in types):  # arrays cannot sort lists
        return rows
    return rows.sort_by([(name, "ascending") for name in names])


def fields_of(table: DatabaseTargetTable, rows: pa.Table) -> list[DatabaseColumn]:
    """List the columns that rows have, in their order."""
    fields: Mapping[str, DatabaseColumn] = {field.name: field for field in table.fields}
    return [fields[name] for name in rows.column_names]
