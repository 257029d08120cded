"""The types of columns in each database, as a table for people: ``python -m dev.properties`` puts it into ``docs/databases.md``."""

from __future__ import annotations

from airflow_provider_cdc.targets.database.dialects import DIALECTS, load_dialect
from airflow_provider_cdc.targets.database.schema.value_types import Kind

NAMES = {
    "postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "oracle": "Oracle", "db2": "Db2", "mssql": "SQL Server", "sqlite": "SQLite",
}  # fmt: skip
"""Dialect → the database's name."""
VALUES: tuple[tuple[str, Kind, bool], ...] = (
    ("truth values", Kind("bool"), False),
    ("whole numbers of 1 byte", Kind("int8"), False),
    ("of 2 bytes", Kind("int16"), False),
    ("of 4 bytes", Kind("int32"), False),
    ("of 8 bytes", Kind("int64"), False),
    ("floating-point numbers of 4 bytes", Kind("float"), False),
    ("of 8 bytes", Kind("double"), False),
    ("decimals of 12 digits, 2 of them after the point", Kind("decimal", 12, 2), False),
    ("of 60 digits, 10 of them after the point", Kind("decimal", 60, 10), False),
    ("of 80 digits, 70 of them after the point", Kind("decimal", 80, 70), False),
    ("with the point anywhere", Kind("number"), False),
    ("texts", Kind("text"), False),
    ("of 20 characters at most", Kind("text", 20), False),
    ("of 20 characters at most, as the source tells", Kind("text", 20, told="VARCHAR"), False),
    ("in a key", Kind("text"), True),
    ("of 20 characters at most, in a key", Kind("text", 20), True),
    ("bytes", Kind("bytes"), False),
    ("16 of them at most", Kind("bytes", 16), False),
    ("16 of them at most, as the source tells", Kind("bytes", 16, told="VARBINARY"), False),
    ("in a key", Kind("bytes"), True),
    ("dates", Kind("date"), False),
    ("times of a day, in seconds", Kind("time", scale=0), False),
    ("in microseconds", Kind("time", scale=6), False),
    ("with a zone", Kind("time_tz"), False),
    ("dates with a time, in seconds", Kind("timestamp", scale=0), False),
    ("in microseconds", Kind("timestamp", scale=6), False),
    ("in nanoseconds", Kind("timestamp", scale=9), False),
    ("moments, in microseconds", Kind("timestamp_tz", scale=6), False),
    ("12 bits", Kind("bits", 12), False),
    ("enumerations", Kind("enum", members=("small", "large")), False),
    ("sets", Kind("set", members=("small", "large")), False),
    ("JSON", Kind("json"), False),
    ("XML", Kind("xml"), False),
    ("UUIDs", Kind("uuid"), False),
    ("label trees (`ltree`)", Kind("ltree"), False),
    ("years", Kind("year"), False),
    ("durations, in microseconds", Kind("duration"), False),
    ("intervals", Kind("interval"), False),
    ("vectors", Kind("vector"), False),
    ("geometries", Kind("geometry"), False),
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
