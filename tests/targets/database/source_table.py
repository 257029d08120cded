"""A table of a source whose columns say what a database's own would: lengths, defaults, what may be NULL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableChange, TableSchema, arrow_type
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import UPPER, in_order, rows, sink

ID = Column(name="id", type="int64", nullable=False)


def column(name: str, type_: str, told: str = "", length: int | None = None, **more: Any) -> Column:
    """
    :param told: the source's own type, which it reports
    """
    inner = {key: more.pop(key) for key in ("default", "default_is_expression", "values", "scale") if key in more}
    parameters = more.pop("parameters", {}) | ({"__debezium.source.column.type": told} if told else {})
    return Column(
        name=name,
        type=type_,
        parameters=parameters,
        declared=ColumnDeclaration(type_name=told, length=length, **inner),
        **more,
    )


def _as(column: Column, value: Any) -> Any:
    """A value, or the text of one, in a column's type."""
    return None if value is None else pa.scalar(value).cast(arrow_type(column.type)).as_py()


class Table:
    """The table ``s.t`` of a source, whose rows come into ``p_s_t``."""

    def __init__(self, folder: Path, engine: sa.Engine, *columns: Column) -> None:
        self.engine, self.source = engine, MemoryDatabase(str(folder))
        self.source.create_table("s.t", {"id": "int64!"}, key=("id",))
        self.connector: Connector = memory_connector(self.source, folder, topic_prefix="p")
        self.alter(ID, *columns)

    def alter(
        self,
        *columns: Column,
        added: Mapping[str, str | None] | None = None,
        renamed: Mapping[str, str] | None = None,
        key: tuple[str, ...] = ("id",),
    ) -> None:
        """Give the table these columns; rows that are there keep the values of those that they have."""
        with self.source.lock:
            known: TableSchema = self.source._schemas[self.source.resolve_table_id("s.t")]
            schema = known.model_copy(update={"columns": columns, "key": key})
            made_again = tuple(c.name for c in columns if c.name in {*known.column_names} and c.name in (added or {}))
            for row in self.source._own(schema.id):
                before = dict(row)
                row.clear()
                for c in columns:
                    old = (renamed or {}).get(c.name, c.name)
                    row[c.name] = _as(c, added[c.name] if added and c.name in added else before.get(old))
            change = TableChange(
                type="ALTER",
                id=schema.id,
                table=schema,
                added=dict(added or {}),
                renamed=dict(renamed or {}),
                dropped=made_again,
            )
            self.source._alter(schema, change, "…")

    def insert(self, *found: dict[str, Any]) -> None:
        with self.source.transaction() as t:
            for row in found:
                t.insert("s.t", row)

    def apply(self, **properties: Any) -> None:
        self.connector.capture()
        sink(self.engine, self.connector, **properties).apply()

    @property
    def there(self) -> dict[str, Any]:
        """Name → the column of the target."""
        with self.engine.connect() as connection:
            if self.engine.dialect.name in UPPER:
                found = dialect_of(self.engine).find_table(connection, TargetTableName("P_S_T"))
                assert found is not None
                return {name.lower(): {"nullable": c.nullable, "told": c.type} for name, c in found.columns.items()}
            return {str(c["name"]): c for c in sa.inspect(connection).get_columns("p_s_t")}

    def types(self, *names: str) -> list[str]:
        """Return the types of these columns of the target, without their collations."""
        found = [
            there["told"] if "told" in there else self._type(name, there["type"])
            for name, there in self.there.items()
            if name in names
        ]
        return [type_.split(" CHARACTER")[0].split(" COLLATE")[0].replace(" WITHOUT TIME ZONE", "") for type_ in found]

    def _type(self, name: str, type_: Any) -> str:
        if not isinstance(type_, sa.types.NullType):
            return str(type_.compile(dialect=self.engine.dialect))
        with self.engine.connect() as connection:  # SQLAlchemy does not know it
            query = f"SELECT upper(udt_name) FROM information_schema.columns WHERE table_name = 'p_s_t' AND column_name = '{name}'"
            return str(connection.exec_driver_sql(query).scalar_one())

    def found(self) -> list[dict[str, Any]]:
        return in_order(rows(self.engine, "p_s_t"))
