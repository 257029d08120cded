"""The types of columns in each database, as a table for people: ``python -m dev.properties`` puts it into ``docs/targets/database-columns.md``."""

from __future__ import annotations

from airflow_provider_cdc.targets.database.dialects import DIALECTS, load_dialect
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind

NAMES = {
    "postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "oracle": "Oracle", "db2": "Db2", "mssql": "SQL Server", "sqlite": "SQLite",
}  # fmt: skip
"""Dialect → the database's name."""
VALUES: tuple[tuple[str, ValueKind, bool], ...] = (
    ("truth values", ValueKind("bool"), False),
    ("whole numbers of 1 byte", ValueKind("int8"), False),
    ("of 2 bytes", ValueKind("int16"), False),
    ("of 4 bytes", ValueKind("int32"), False),
    ("of 8 bytes", ValueKind("int64"), False),
    ("floating-point numbers of 4 bytes", ValueKind("float"), False),
    ("of 8 bytes", ValueKind("double"), False),
    ("decimals of 12 digits, 2 of them after the point", ValueKind("decimal", 12, 2), False),
    ("of 60 digits, 10 of them after the point", ValueKind("decimal", 60, 10), False),
    ("of 80 digits, 70 of them after the point", ValueKind("decimal", 80, 70), False),
    ("with the point anywhere", ValueKind("number"), False),
    ("texts", ValueKind("text"), False),
    ("of 20 characters at most", ValueKind("text", 20), False),
    ("of 20 characters at most, as declared in the source", ValueKind("text", 20, source_type="VARCHAR"), False),
    ("in a key", ValueKind("text"), True),
    ("of 20 characters at most, in a key", ValueKind("text", 20), True),
    ("bytes", ValueKind("bytes"), False),
    ("16 of them at most", ValueKind("bytes", 16), False),
    ("16 of them at most, as declared in the source", ValueKind("bytes", 16, source_type="VARBINARY"), False),
    ("in a key", ValueKind("bytes"), True),
    ("dates", ValueKind("date"), False),
    ("times of a day, in seconds", ValueKind("time", scale=0), False),
    ("in microseconds", ValueKind("time", scale=6), False),
    ("with a zone", ValueKind("time_tz"), False),
    ("dates with a time, in seconds", ValueKind("timestamp", scale=0), False),
    ("in microseconds", ValueKind("timestamp", scale=6), False),
    ("in nanoseconds", ValueKind("timestamp", scale=9), False),
    ("moments, in microseconds", ValueKind("timestamp_tz", scale=6), False),
    ("12 bits", ValueKind("bits", 12), False),
    ("enumerations", ValueKind("enum", members=("small", "large")), False),
    ("sets", ValueKind("set", members=("small", "large")), False),
    ("JSON", ValueKind("json"), False),
    ("XML", ValueKind("xml"), False),
    ("UUIDs", ValueKind("uuid"), False),
    ("label trees (`ltree`)", ValueKind("ltree"), False),
    ("years", ValueKind("year"), False),
    ("durations, in microseconds", ValueKind("duration"), False),
    ("intervals", ValueKind("interval"), False),
    ("vectors", ValueKind("vector"), False),
    ("geometries", ValueKind("geometry"), False),
)
"""What it is called, the kind, and whether it is part of a key."""


def type_table() -> str:
    """The table in Markdown: a line for each kind of values, a column for each database."""
    dialects = {name: load_dialect(name)() for name in NAMES}
    assert dialects.keys() == DIALECTS.keys()
    lines = [" | ".join(("| values", *NAMES.values())) + " |", "| --- " * (len(NAMES) + 1) + "|"]
    for words, kind, key in VALUES:
        types = (f"`{dialect.type_of(kind, key=key)}`" for dialect in dialects.values())
        lines.append(" | ".join((f"| {words}", *types)) + " |")
    return "\n".join(lines)
