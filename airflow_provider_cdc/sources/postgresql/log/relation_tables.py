"""The relations that a stream has named, with the tables that they are and the decoders of their rows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import Connection

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.log_items import SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import connect, raise_cdc_errors
from airflow_provider_cdc.sources.postgresql.log.relation_changes import LiveTable, RelationComparison, with_structure
from airflow_provider_cdc.sources.postgresql.log.relation_columns import Attribute, read_attributes
from airflow_provider_cdc.sources.postgresql.log.row_decoder import RowDecoder
from airflow_provider_cdc.sources.postgresql.log.source_fields import build_source
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, format_lsn
from airflow_provider_cdc.sources.postgresql.protocol.relation_messages import Relation
from airflow_provider_cdc.sources.postgresql.schema.catalog_reader import PostgresCatalog
from airflow_provider_cdc.sources.postgresql.schema.table_structure import TableStructure
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import TypeCatalog

_R = TypeVar("_R")
_MANY: Final = 1_000
"""Relations that are no longer in force, up to which they are kept."""


@dataclass(slots=True)
class RelationTable:
    """A relation, as one relation message has it.

    :ivar decoder: of its rows; ``None`` until it is needed
    :ivar left_out: why its rows cannot be decoded, if the table is read again
    """

    relation: Relation
    table: TableId
    decoder: RowDecoder | None = None
    left_out: str = ""


class StreamCatalog:
    """The catalogs of the live database, over one connection that is opened when it is needed first."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._connection: Connection[tuple[Any, ...]] | None = None
        self._types: TypeCatalog | None = None

    def get_types(self, oids: Iterable[int]) -> TypeCatalog:
        """Return the types of the database; read again if one of these is not among them."""
        if self._types is None or any(self._types.find_type(oid) is None for oid in oids):
            self._types = self._ask(TypeCatalog.read)
        return self._types

    def read_attributes(self, oids: Iterable[int]) -> dict[int, list[Attribute]]:
        """Read the columns of tables; see :func:`.relation_columns.read_attributes`."""
        wanted = list(oids)
        return self._ask(lambda connection: read_attributes(connection, wanted))

    def read_structure(self, oid: int) -> TableStructure | None:
        """Read the structure of a table; ``None`` if it does not exist any more."""
        return self._ask(
            lambda connection: PostgresCatalog(connection, self._config, self._types).read_structure_by_number(oid)
        )

    def close(self) -> None:
        """Close the connection. It may be called twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: Callable[[Connection[tuple[Any, ...]]], _R]) -> _R:
        """Ask over the connection, and once more over a new one if it was lost meanwhile."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.OperationalError, psycopg.InterfaceError), _raise_cause():
                return question(self._connection)
            self.close()
        self._connection = connect(self._config)
        with raise_cdc_errors(self._config):
            return question(self._connection)


@contextlib.contextmanager
def _raise_cause() -> Iterator[None]:
    """Raise the error of psycopg behind one of this project, if there is one."""
    try:
        yield
    except Exception as e:
        if isinstance(e.__cause__, psycopg.Error):
            raise e.__cause__ from None
        raise


class RelationTables:
    """The relations of one stream.

    :param tables: the table schemas in force
    """

    def __init__(self, config: PostgresConfig, tables: CapturedTableSchemas, catalog: StreamCatalog) -> None:
        self._config, self._tables, self._catalog = config, tables, catalog
        self._entries: list[RelationTable] = []
        self._current: dict[int, int] = {}
        self.index: npt.NDArray[np.int64] = np.empty((0, 2), np.int64)

    def clear(self) -> None:
        """Forget all relations: a new connection names each again."""
        self._entries, self._current = [], {}
        self._build_index()

    def get_entry(self, number: int) -> RelationTable:
        """Return a relation by the number that rows have for it."""
        return self._entries[number]

    def find_current(self, oid: int) -> int | None:
        """Return the number of the relation with an OID; ``None`` if the stream has not named it."""
        return self._current.get(oid)

    def find_replaced(self, relation: Relation) -> set[int]:
        """Return the numbers of relations whose rows must be decoded before a relation message takes effect."""
        table = self._table_of(relation)
        replaced = {n for n in self._current.values() if self._entries[n].table == table}
        if relation.oid in self._current:
            replaced.add(self._current[relation.oid])
        return replaced

    def add_relation(self, relation: Relation) -> None:
        """Take a relation message. The table is compared with the catalog again, even if the relation is the same."""
        self._entries.append(RelationTable(relation, self._table_of(relation)))
        self._current[relation.oid] = len(self._entries) - 1
        self._build_index()

    def trim(self) -> None:
        """Forget relations that are no longer in force. No rows are waiting."""
        if len(self._entries) > len(self._current) + _MANY:
            kept = list(self._current.items())
            self._entries = [self._entries[number] for _, number in kept]
            self._current = {oid: n for n, (oid, _) in enumerate(kept)}
            self._build_index()

    def resolve_relations(
        self, numbers: Iterable[int], position: PostgresPosition, ts_us: int, transaction: int | None, lsn: int
    ) -> Iterator[SchemaChange]:
        """Make decoders for captured tables among these relations. Yields the changes of structure, which are to be applied at once.

        :param position: behind the last complete transaction that was delivered
        :param ts_us: when the transaction with the change was committed
        :raises SchemaConflict: the table's schema does not fit its rows, and it is not read again
        """
        wanted = [self._entries[n] for n in numbers if self._tables.is_captured(self._entries[n].table)]
        wanted = [e for e in wanted if not self._is_resolved(e)]
        if not wanted:
            return
        attributes = self._catalog.read_attributes({e.relation.oid for e in wanted})
        for entry in wanted:
            yield from self._resolve(entry, attributes.get(entry.relation.oid, []), position, ts_us, transaction, lsn)

    def _is_resolved(self, entry: RelationTable) -> bool:
        schema = self._tables.find_schema(entry.table)
        return entry.decoder is not None and (entry.decoder.schema is schema or entry.decoder.schema == schema)

    def _resolve(
        self,
        entry: RelationTable,
        attributes: list[Attribute],
        position: PostgresPosition,
        ts_us: int,
        transaction: int | None,
        lsn: int,
    ) -> Iterator[SchemaChange]:
        relation, table = entry.relation, entry.table
        types = self._catalog.get_types(column.type_oid for column in relation.columns)
        comparison = RelationComparison(self._config, types)
        known, at_place = self._find_known(relation, table)
        if known is None or not at_place or not comparison.fits_schema(relation, known, attributes):
            structure = self._catalog.read_structure(relation.oid) if attributes else None
            live = with_structure(LiveTable(attributes), structure)
            changes = comparison.find_changes(relation, table, known, live)
            yield SchemaChange(
                "", self._config.database_dbname, changes, position, ts_us or time.time_ns() // 1000,
                build_source(position.lsn, transaction, lsn),
            )  # fmt: skip
        schema = self._tables.find_schema(table)
        names = set() if schema is None else set(schema.column_names)
        if schema is not None and names.issuperset(column.name for column in relation.columns):
            entry.decoder, entry.left_out = RowDecoder(schema, relation, types, self._config), ""
        elif self._tables.read_again(table):
            entry.left_out = "the structure of its rows in this part of the log is not known"
        else:
            raise self._conflict(table, lsn)

    def _find_known(self, relation: Relation, table: TableId) -> tuple[TableSchema | None, bool]:
        """Find the schema that the table had before, and whether under the same name."""
        at_place = self._tables.find_schema(table)
        if at_place is not None and at_place.object_number in (None, relation.oid):
            return at_place, True
        for other in self._tables.list_known_tables():
            schema = self._tables.find_schema(other)
            if schema is not None and schema.object_number == relation.oid:
                return schema, False
        return at_place, True

    def _table_of(self, relation: Relation) -> TableId:
        return TableId(namespace=relation.namespace, name=relation.name, catalog=self._config.database_dbname)

    def _build_index(self) -> None:
        self.index = np.array(sorted(self._current.items()), np.int64).reshape(-1, 2)

    def _conflict(self, table: TableId, lsn: int) -> SchemaConflict:
        error = SchemaConflict(
            f"Rows of {table} do not have the columns of its schema, and the catalog does not explain them.",
            where=format_lsn(lsn),
            safe="Everything before this transaction is captured; no row was decoded with a guessed structure.",
            remedy="snapshot the table again with snapshot.mode=always for one run",
        )
        error.table = str(table)
        return error
