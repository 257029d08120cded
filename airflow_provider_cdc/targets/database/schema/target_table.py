"""Structure of a target table: its name, its columns and its key, by the schema of a topic and the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import HEADER, Column, TableSchema
from airflow_provider_cdc.core.name_patterns import escape_name
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, PrimaryKeyMode

COORDINATES = (
    Column(name="__connect_topic", type="string", nullable=False),
    Column(name="__connect_partition", type="int32", nullable=False),
    Column(name="__connect_offset", type="int64", nullable=False),
)
"""Key columns of ``primary.key.mode=kafka``: topic, 0, and the event's number in the change log."""
PREVIOUS = "cdc previous {}"
"""Name of a key column, by its place in the key, in rows that get another key."""
_PLACE = re.compile(r"\$\{(topic|source\.db|source\.schema|source\.table)\}")


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column of a target table.

    :param name: in the target, as its dialect folds it
    :param column: of the source, or one of :data:`COORDINATES`
    :param key: whether it is part of the key
    """

    name: str
    column: Column
    key: bool = False

    @property
    def is_required(self) -> bool:
        """Check whether it must not be NULL."""
        return self.key or not self.column.nullable

    @property
    def nullable_copy(self) -> DatabaseColumn:
        """The same that may be NULL."""
        return replace(self, column=self.column.model_copy(update={"nullable": True}))


@dataclass(frozen=True, slots=True)
class TargetTableName:
    """The name of a table.

    :param schema: ``None``: that of the connection
    """

    table: str
    schema: str | None = None

    @classmethod
    def parse(cls, text: str, form: str) -> TargetTableName:
        """Parse a text like that of :meth:`__str__` into the name that it has.

        :param form: ``collection.name.format``, whose points stand between a schema and a table
        """
        if "." not in _PLACE.sub("", form):
            return cls(text)
        schema, _, table = text.rpartition(".")
        return cls(table, schema or None)

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class DatabaseTargetTable:
    """A target table as a topic wants it.

    :param fields: key columns first
    """

    topic: str
    name: TargetTableName
    fields: tuple[DatabaseColumn, ...]

    @property
    def key_columns(self) -> tuple[DatabaseColumn, ...]:
        return tuple(field for field in self.fields if field.key)

    @property
    def with_previous_key(self) -> DatabaseTargetTable:
        """The same with the keys that rows had before, which are in no target: see :data:`PREVIOUS`."""
        before = tuple(DatabaseColumn(PREVIOUS.format(at), field.column) for at, field in enumerate(self.key_columns))
        return DatabaseTargetTable(self.topic, self.name, (*self.fields, *before))

    @property
    def value_columns(self) -> tuple[DatabaseColumn, ...]:
        """Columns that are not part of the key."""
        return tuple(field for field in self.fields if not field.key)


class NameRules(Protocol):
    """The rules of a database for names, see :class:`airflow_provider_cdc.targets.database.dialects.target_dialect.TargetDialect`."""

    @property
    def name(self) -> str: ...
    @property
    def longest(self) -> int: ...
    @property
    def SYSTEM_COLUMNS(self) -> frozenset[str]: ...
    def fold_name(self, name: str) -> str: ...
    def length_of(self, name: str) -> int: ...
    def same_column(self, name: str) -> str: ...


def table_of(topic: str, schema: TableSchema, config: DatabaseTargetConfig, names: NameRules) -> DatabaseTargetTable:
    """Build the target table of a topic.

    :param names: the database's rules for names
    :raises ConfigError: the configuration does not fit this table, see :func:`_keys`, or the database cannot have its names
    """
    fold = (lambda name: name) if config.quote_identifiers else names.fold_name
    chosen = _selected_columns(topic, schema, config)
    keys = _keys(topic, schema, chosen, config)
    own = [] if config.primary_key_mode is not PrimaryKeyMode.KAFKA else list(COORDINATES)
    fields = [DatabaseColumn(fold(column.name.removeprefix(HEADER)), column, key=True) for column in (*own, *keys)]
    taken = {field.name for field in fields} if config.primary_key_mode is PrimaryKeyMode.RECORD_HEADER else set()
    rest = [DatabaseColumn(fold(column.name.removeprefix(HEADER)), column) for column in chosen if column not in keys]
    # a header that is the key stands for a column of its name
    fields += [field for field in rest if field.name not in taken]
    _refuse_twice(topic, fields, names)
    table = DatabaseTargetTable(topic, name_of(topic, schema, config, fold), tuple(fields))
    _refuse_long(table, names)
    _refuse_columns(table, names)
    return table


def name_of(
    topic: str, schema: TableSchema, config: DatabaseTargetConfig, fold: Callable[[str], str]
) -> TargetTableName:
    """Build a table's name.

    Dots of the topic become underscores; one that the format has itself stands between schema and table.
    """
    values = {
        "topic": topic.replace(".", "_"), "source.db": schema.id.database_name, "source.schema": schema.id.namespace,
        "source.table": schema.id.name,
    }  # fmt: skip
    parts = _joined(config.name_format, values, fold)
    return TargetTableName(parts[-1], ".".join(parts[:-1]) or None)


def _joined(form: str, values: dict[str, str], fold: Callable[[str], str]) -> list[str]:
    """Split a format at its own dots, with values in place of ``${…}``, whose dots separate nothing."""
    parts, at = [""], 0
    for match in _PLACE.finditer(form):
        first, *more = form[at : match.start()].split(".")
        parts[-1] += first
        parts += more
        parts[-1] += values[match[1]]
        at = match.end()
    first, *more = form[at:].split(".")
    parts[-1] += first
    return [fold(part) for part in (*parts, *more)]


def _selected_columns(topic: str, schema: TableSchema, config: DatabaseTargetConfig) -> list[Column]:
    """Columns that lists of fields leave, and that can be captured."""

    columns = [column for column in schema.columns if column.type != "null"]
    key = {*schema.key}
    if config.primary_key_mode is PrimaryKeyMode.RECORD_HEADER:
        key |= {column.name for column in columns if column.name.startswith(HEADER)}
    return [c for c in columns if c.name in key or not leaves_out(topic, c.name, config)]


def leaves_out(topic: str, name: str, config: DatabaseTargetConfig) -> bool:
    """Return whether a list of fields leaves a column out of a topic's table, unless it is one of the key."""

    def listed(patterns: Iterable[str]) -> bool:
        return any(re.fullmatch(pattern, f"{topic}:{name}") or re.fullmatch(pattern, name) for pattern in patterns)

    if config.field_include_list:
        return not listed(config.field_include_list)
    return listed(config.field_exclude_list)


def _keys(topic: str, schema: TableSchema, columns: list[Column], config: DatabaseTargetConfig) -> list[Column]:
    """List the key columns of the source that the table's key has.

    :raises ConfigError: there are none, or ``primary.key.fields`` names others than there are
    """
    mode, fields = config.primary_key_mode, config.primary_key_fields
    if mode in (PrimaryKeyMode.NONE, PrimaryKeyMode.KAFKA):
        return []
    if mode is PrimaryKeyMode.RECORD_HEADER:
        return _headers(topic, columns, fields)
    names = {column.name for column in columns}
    key_candidates = list(schema.key) if mode is PrimaryKeyMode.RECORD_KEY else [column.name for column in columns]
    key_names = [name for name in key_candidates if name in names and (not fields or name in fields)]
    if fields and (unknown := sorted(set(fields) - set(key_candidates))):
        raise ConfigError(
            f"primary.key.fields names {', '.join(unknown)}, but the events of {topic} have {', '.join(key_candidates) or 'no key'}.",
            safe="The table was not changed; other tables continue.",
            remedy="correct primary.key.fields, or leave it out, so that the key includes all of these columns",
        )
    if not key_names:
        raise ConfigError(
            f"The events of {topic} have no key, but primary.key.mode={mode} needs a key.",
            safe="The table was not changed; other tables continue.",
            remedy="add a primary key to the source table, or name key columns with message.key.columns of the connector, and snapshot the table again with "
            f"`{name_cdc_command('snapshot')} … --replace`, because earlier events have no key; or leave the topic out with topics.regex",
        )
    return [schema.get_column(name) for name in key_names]


def _headers(topic: str, columns: list[Column], fields: tuple[str, ...]) -> list[Column]:
    """List the headers that the table's key has.

    :raises ConfigError: there are none, or not all that ``primary.key.fields`` names
    """
    headers = {column.name.removeprefix(HEADER): column for column in columns if column.name.startswith(HEADER)}
    missing = [name for name in fields if name not in headers]
    if missing or not headers:
        raise ConfigError(
            f"primary.key.mode=record_header reads the key from headers, but the events of {topic} have only the headers {', '.join(headers) or 'none'}"
            + (f": {', '.join(missing)} is missing." if missing else "."),
            safe="The table was not changed; other tables continue.",
            remedy="name the headers in events.headers of the connector, which needs the source debezium: other sources have no headers",
        )
    return [headers[name] for name in fields] if fields else list(headers.values())


def _refuse_twice(topic: str, fields: list[DatabaseColumn], names: NameRules) -> None:
    """Reject columns whose names are equal in the target.

    :raises ConfigError: two columns of the source are one in the target
    """
    first: dict[str, str] = {}
    for field in fields:
        if (other := first.setdefault(names.same_column(field.name), field.column.name)) != field.column.name:
            keeps_case = names.same_column("A") != names.same_column("a")
            raise ConfigError(
                f"The columns {other} and {field.column.name} of {topic} would both have the name {field.name} in the target.",
                safe="The table was not changed; other tables continue.",
                remedy=("set quote.identifiers=true, which keeps the case of names, or " if keeps_case else "")
                + f"leave one of them out with {_excluded(topic, field)}",
            )


def _refuse_long(table: DatabaseTargetTable, names: NameRules) -> None:
    """Reject names that are too long for the database.

    :raises ConfigError: the database would cut a name, or not take it
    """
    most = f"{names.name} supports names of at most {names.longest} {'characters' if names.length_of('ä') == 1 else 'bytes'}"
    for part in filter(None, (table.name.schema, table.name.table)):
        if (length := names.length_of(part)) > names.longest:
            raise ConfigError(
                f"The table of {table.topic} would have the name {part}, with a length of {length}: {most}.",
                safe="The table was not created; other tables continue.",
                remedy="give tables shorter names with collection.name.format, such as ${source.table}, or leave the topic out with topics.regex",
            )
    if long := [field for field in table.fields if names.length_of(field.name) > names.longest]:
        raise ConfigError(
            f"The names of {_listed(long)} of {table.topic} are too long: {most}.",
            safe="The table was not changed; other tables continue.",
            remedy=_without(table.topic, long),
        )


def _refuse_columns(table: DatabaseTargetTable, names: NameRules) -> None:
    """Reject columns with names of the database's system columns.

    :raises ConfigError: the database has columns of these names itself
    """
    if taken := [field for field in table.fields if names.same_column(field.name) in names.SYSTEM_COLUMNS]:
        raise ConfigError(
            f"The table of {table.topic} cannot have the columns {_listed(taken)}: {names.name} reserves these column names.",
            safe="The table was not changed; other tables continue.",
            remedy=_without(table.topic, taken),
        )


def _listed(fields: Iterable[DatabaseColumn]) -> str:
    return ", ".join(field.name for field in fields)


def _excluded(topic: str, *fields: DatabaseColumn) -> str:
    return exclude_columns(topic, *(field.column.name for field in fields))


def exclude_columns(topic: str, *columns: str) -> str:
    """Build the property that leaves columns of a topic out."""
    return "field.exclude.list=" + ",".join(f"{escape_name(topic)}:{escape_name(name)}" for name in columns)


def _without(topic: str, fields: list[DatabaseColumn]) -> str:
    """Describe how a table does without some columns."""
    if keys := [field for field in fields if field.key]:
        return f"{_listed(keys)} is part of the key, which is needed to find rows: leave the topic out with topics.regex, or rename the column at the source"
    return f"leave them out with {_excluded(topic, *fields)}, or rename them at the source"
