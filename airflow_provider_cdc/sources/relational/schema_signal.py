"""Structures as people write them in ``schema-changes`` signals, in the form of ``tableChanges`` of a schema change event.

The form is the same for every relational database, and is read and checked here (Debezium documents, "Schema change topic"). The
meaning of table names and types is the database's own: a :class:`SignalDialect` has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema

_PART = r'(?:"(?:[^"]|"")+"|[^".]+)'
_NAME = re.compile(rf"\s*{_PART}(?:\.{_PART}){{0,2}}\s*")
_EACH = re.compile(_PART)


@dataclass(frozen=True, slots=True)
class SignalColumn:
    """A column as a signal describes it; its form is checked.

    :param type_text: ``typeName``, else ``typeExpression``
    :param table_charset: the table's default character set, where the database has such
    :param document: everything that the signal says of the column
    """

    table: TableId
    name: str
    type_text: str
    length: int | None
    scale: int | None
    nullable: bool
    default: str | None
    generated: bool
    auto_incremented: bool
    table_charset: str | None
    document: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        """Its whole name, for messages."""
        return f"{self.table}.{self.name}"


class SignalDialect(Protocol):
    """Parts of a structure that are the database's own."""

    def resolve_tables(self, text: Any) -> tuple[TableId, TableId | None]:
        """Return the table that ``id`` names, and where it renames one, the table's old id.

        :raises ConfigError: it names none
        """

    def find_charset(self, table: TableId, structure: Mapping[str, Any]) -> str | None:
        """Return the table's default character set; ``None`` where tables have none.

        :raises ConfigError: it is no text
        """

    def build_column(self, described: SignalColumn) -> Column:
        """Build the change log column of a described one.

        :raises ConfigError: there is no such type
        """

    def fold_name(self, name: str) -> str:
        """Return a column's name in the form that is equal for names that the database takes for the same."""

    def build_structure_error(self, problem: str) -> ConfigError:
        """Return the error for a structure that cannot be used, with its remedy."""


@dataclass(frozen=True, slots=True)
class DatabaseNames:
    """Names of a database whose tables are in schemas, where people write ``<database>.<schema>.<table>``.

    :param catalog: as the connector's tables have it
    :param others: further names of the same database
    :param form: of a table's name, and an example of it, for messages
    """

    catalog: str
    form: str
    example: str
    others: tuple[str, ...] = ()

    def is_own_database(self, database: str) -> bool:
        """Check whether a name means this database."""
        return database.upper() in {name.upper() for name in (self.catalog, *self.others)}

    def signal_table(self, text: str) -> TableId:
        """Return the table of ``signal.data.collection``: with the database in front, or without.

        Names that are not in double quotes are in capitals, as in SQL.

        :raises ConfigError: it is no such name, or is of another database
        """
        parts = parts_of_name(text)
        if len(parts) < 2:
            raise ConfigError(
                f"signal.data.collection: {text!r} is not the name of a table.",
                remedy=f"write it as {self.form}, for example {self.example}",
            )
        *database, namespace, name = parts
        if database and not self.is_own_database(database[0]):
            raise ConfigError(
                f"signal.data.collection: {text!r} is in the database {database[0]}, which this connector does not capture.",
                remedy=f"write it as {self.example}",
            )
        return TableId(catalog=self.catalog, namespace=namespace, name=name)


@dataclass(frozen=True, slots=True)
class SchemaDialect:
    """The dialect of databases whose tables are in schemas, but for the columns (:class:`SignalDialect`).

    :param database: and ``schema``: of tables whose id does not name them
    """

    database: str
    schema: str | None
    names: DatabaseNames

    def resolve_tables(self, text: Any) -> tuple[TableId, TableId | None]:
        parts = parts_of_name(text) if isinstance(text, str) else []
        if not parts:
            raise self.build_structure_error(f'"id" is {text!r}, which is not the name of a table')
        owner = parts[0] if len(parts) > 2 else self.database
        namespace = parts[-2] if len(parts) > 1 else self.schema
        if not namespace:
            raise self.build_structure_error(f'"id" is {text!r}, and "schema" is missing')
        if not self.names.is_own_database(owner):
            raise self.build_structure_error(
                f"{text} is in the database {owner}, which this connector does not capture"
            )
        return TableId(catalog=self.names.catalog, namespace=namespace, name=parts[-1]), None

    def find_charset(self, table: TableId, structure: Mapping[str, Any]) -> str | None:
        return None  # character sets are the database's, and not a table's

    def fold_name(self, name: str) -> str:
        return name

    def build_structure_error(self, problem: str) -> ConfigError:
        return ConfigError(
            f"The table structure is invalid: {problem}.",
            remedy='write each entry of "changes" like an entry of "tableChanges" in a schema change event',
        )


def parts_of_name(text: str) -> list[str]:
    """Split a name into its parts, at most three; those without double quotes in capitals. Empty if it is none.

    >>> parts_of_name('orclpdb1.app."My.Signals"')
    ['ORCLPDB1', 'APP', 'My.Signals']
    """
    if not _NAME.fullmatch(text):
        return []
    parts = _EACH.findall(text.strip())
    return [p[1:-1].replace('""', '"') if p.startswith('"') else p.strip().upper() for p in parts]


def read_change(document: Mapping[str, Any], dialect: SignalDialect) -> TableChange:
    """Parse one of the ``changes`` of a ``schema-changes`` signal: a table's whole structure.

    :raises ConfigError: it cannot be understood
    """
    kind = document.get("type")
    if kind not in ("CREATE", "ALTER", "DROP"):
        raise dialect.build_structure_error(f'"type" is {kind!r}; valid values are CREATE, ALTER and DROP')
    table, previous = dialect.resolve_tables(document.get("id"))
    if kind == "DROP":
        return TableChange(type="DROP", id=table)
    structure = _structure(table, document.get("table"), dialect)
    return TableChange(type=kind, id=table, previous_id=previous, table=structure)


def _structure(table: TableId, document: Any, dialect: SignalDialect) -> TableSchema:
    columns = document.get("columns") if isinstance(document, Mapping) else None
    if not isinstance(columns, list) or not columns:
        raise dialect.build_structure_error(f'{table} has no list of "columns" in its "table"')
    charset = dialect.find_charset(table, document)
    table_columns = [dialect.build_column(_column(table, c, charset, dialect)) for c in sorted(columns, key=_position)]
    names = [column.name for column in table_columns]
    if len({dialect.fold_name(name) for name in names}) < len(names):
        raise dialect.build_structure_error(f"{table} has two columns of the same name")
    key = document.get("primaryKeyColumnNames") or []
    if not isinstance(key, list):
        raise dialect.build_structure_error(f'"primaryKeyColumnNames" of {table} is {key!r}, not a list')
    if not all(name in names for name in key):
        raise dialect.build_structure_error(
            f'"primaryKeyColumnNames" of {table} is {key!r}; its columns are {", ".join(names)}'
        )
    table_columns = [c.model_copy(update={"nullable": False}) if c.name in key else c for c in table_columns]
    return TableSchema(id=table, columns=tuple(table_columns), key=tuple(key), charset=charset)


def _position(column: Any) -> int:
    position = column.get("position") if isinstance(column, Mapping) else None
    return position if isinstance(position, int) else 0


def _column(table: TableId, document: Any, charset: str | None, dialect: SignalDialect) -> SignalColumn:
    name = document.get("name") if isinstance(document, Mapping) else None
    if not isinstance(name, str) or not name:
        raise dialect.build_structure_error(f'{table} has a column without "name"')
    text = document.get("typeName") or document.get("typeExpression")
    if not isinstance(text, str):
        raise dialect.build_structure_error(f'{table}.{name} has no "typeName"')
    for number in ("length", "scale"):
        if not isinstance(document.get(number), int | None) or isinstance(document.get(number), bool):
            raise dialect.build_structure_error(f'"{number}" of {table}.{name} is {document[number]!r}, not a number')
    default = document.get("defaultValueExpression")
    return SignalColumn(
        table,
        name,
        text,
        document.get("length"),
        document.get("scale"),
        nullable=bool(document.get("optional", True)),
        default=str(default) if default is not None else None,
        # Debezium counts columns that the database numbers among the generated ones
        generated=bool(document.get("generated")) and not document.get("autoIncremented"),
        auto_incremented=bool(document.get("autoIncremented")),
        table_charset=charset,
        document=document,
    )
