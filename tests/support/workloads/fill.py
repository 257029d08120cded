"""Tables with many rows, quickly."""

from __future__ import annotations

from typing import Any


def fill_table(db: Any, table: str, rows: int) -> None:
    """Create a table of MySQL or MariaDB with a key and a text, with up-to-date statistics."""
    db.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))")
    for start in range(1, rows + 1, 20_000):
        values = ",".join(f"({n},'value {n}')" for n in range(start, min(start + 20_000, rows + 1)))
        db.sql(f"INSERT INTO {table} VALUES {values}")
    db.sql(f"ANALYZE TABLE {table}")
