"""The SQLite tables that hold row versions, and the indexes behind keys."""

from dev.servers.oracle.catalog import Key, Table
from dev.servers.oracle.datatypes import qualified


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
    return f"CREATE INDEX IF NOT EXISTS {qualified(f'{table.storage}_{key.name}')} ON {table.storage} ({columns})"
