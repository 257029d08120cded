"""The SQLite tables that hold row versions, and the indexes behind keys."""

import sqlite3

from dev.servers.oracle.engine.catalog import Key, Table
from dev.servers.oracle.values.datatypes import qualify_names


def storage_ddl(table: Table) -> list[str]:
    """The SQLite statements that make the storage of a table."""
    columns = "".join(f", c{column.id} {column.type.affinity}" for column in table.live)
    name = table.storage
    return [
        f"CREATE TABLE {name} (_v INTEGER PRIMARY KEY, _r INTEGER, _bs INTEGER, _bx INTEGER, _es INTEGER, _ex INTEGER{columns})",
        f"CREATE INDEX {name}_r ON {name} (_r)",
        f"CREATE INDEX {name}_bx ON {name} (_bx) WHERE _bx IS NOT NULL",
        f"CREATE INDEX {name}_ex ON {name} (_ex) WHERE _ex IS NOT NULL",
    ]


def key_ddl(table: Table, key: Key) -> str:
    """The SQLite index behind a key."""
    columns = ", ".join(f"c{table.column(name).id}" for name in key.columns)
    return f"CREATE INDEX IF NOT EXISTS {qualify_names(f'{table.storage}_{key.name}')} ON {table.storage} ({columns})"


def change_affinity(database: sqlite3.Connection, table: str, column: str, affinity: str) -> None:
    """Keep the values of a column in another way; indexes on it are made again, as SQLite drops no column that has one."""
    found = database.execute(
        "SELECT m.name, m.sql FROM sqlite_master m, pragma_index_info(m.name) i"
        " WHERE m.type = 'index' AND m.tbl_name = ? AND i.name = ?",
        (table, column),
    )
    indexes = dict(found.fetchall())
    for name in indexes:
        database.execute(f"DROP INDEX {qualify_names(name)}")
    database.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {column}_before")
    database.execute(f"ALTER TABLE {table} ADD COLUMN {column} {affinity}")
    database.execute(f"UPDATE {table} SET {column} = {column}_before")
    database.execute(f"ALTER TABLE {table} DROP COLUMN {column}_before")
    for sql in indexes.values():
        database.execute(sql)
