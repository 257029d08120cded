"""The schema versions of captured tables, by SCN."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import FOREVER
from airflow_provider_cdc.sources.oracle.schema.object_number_registry import ObjectNames, is_unnamed
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StoredColumns, StreamLookups

log = logging.getLogger(__name__)


class SchemaVersions:
    """Numbers the captured tables, and keeps the versions of their schemas.

    A row is decoded when its transaction commits, but with the schema in force when it was written. So an old schema is kept until no
    buffered row is older than the change.

    :param lookups: gives current schemas, and tables that LogMiner does not name
    :param catalog: name of the pluggable database, or of the database, that the tables are in
    """

    def __init__(self, tables: CapturedTableSchemas, lookups: StreamLookups, catalog: str) -> None:
        self._tables, self._lookups, self._catalog = tables, lookups, catalog
        self._objects = ObjectNames(tables, lookups)
        self._ids: list[TableId] = []
        self._numbers: dict[TableId, int] = {}
        self._older: dict[int, list[tuple[int, TableSchema]]] = {}
        self._unknown: set[str] = set()
        self._numbers_by_object: dict[int, int] = {}
        self._objects_of: dict[int, set[int]] = {}
        self._refused: dict[int, SchemaConflict] = {}

    def note_present_names(self) -> None:
        """Read the current names of objects: some may be dropped before their rows are read."""
        self._objects.load_object_numbers()

    def record_object_name(self, number: int, owner: str, name: str) -> None:
        """Record that the log names the table of an object."""
        self._objects.record_object_name(number, TableId(namespace=owner, name=name, catalog=self._catalog))

    def find_table_number(self, owner: str, name: str) -> int:
        """Return the number of a captured table, -1 for others."""
        table = TableId(namespace=owner, name=name, catalog=self._catalog)
        return self._number(table) if self._tables.is_captured(table) else -1

    def number_of_object(
        self, number: int, owner: str, name: str, scn: int, rows: int = 1, columns: int | None = None
    ) -> int:
        """Return the number of the table of an object.

        This is for rows that LogMiner does not name, or names by the table's current name.

        If the table is not known and may be a captured one, the result is a number that :meth:`check_table_numbers` refuses.

        :param number: object number
        :param scn: SCN of the first of these rows
        :param rows: how many rows there are
        :param columns: how many columns the first of them has, if it shows that
        """
        table_number = self._numbers_by_object.get(number)
        if table_number is None:
            table_number = self._numbers_by_object[number] = self._find(number, owner, name, scn, columns)
        if table_number < 0 and is_unnamed(owner, name):
            self._objects.pass_over(number, rows, f"{owner}.{name}")
        return table_number

    def _find(self, number: int, owner: str, name: str, scn: int, columns: int | None) -> int:
        shown = None if is_unnamed(owner, name) else TableId(namespace=owner, name=name, catalog=self._catalog)
        table = self._objects.find_table(number, shown, scn)
        if table is not None and self._tables.is_captured(table):
            gone = self._objects.is_name_certain(number) and self._lookups.read_table(table) is None
            if self._tables.find_schema(table) is None and not gone:
                return self._refuse(_unclear(f"{owner}.{name}", number, [table], scn))
            table_number = self._number(table)
            self._objects_of.setdefault(table_number, set()).add(number)
            return table_number
        if not self._objects.is_name_certain(number) and (missing := self._objects.find_vanished_tables()):
            return self._refuse(_unclear(f"{owner}.{name}", number, missing, scn))
        if (
            not self._objects.is_name_certain(number)
            and shown is None
            and (whole := self._of_partition(columns)) is not None
        ):
            return self._refuse(_of_partition(number, whole, scn))
        return -1

    def _of_partition(self, columns: int | None) -> TableId | None:
        """Return the first captured table that has partitions, and as many columns.

        Rows of an object without a name may be of a partition that was dropped, merged or split since.
        """
        for table in self._lookups.list_partitioned_tables():
            schema = self._tables.find_schema(table) if self._tables.is_captured(table) else None
            if schema is not None and columns in (None, len(schema.columns)) and not self._tables.read_again(table):
                return table
        return None

    def _number(self, table: TableId) -> int:
        number = self._numbers.get(table)
        if number is None:
            number = self._numbers[table] = len(self._ids)
            self._ids.append(table)
        return number

    def assign_table_number(self, table: TableId) -> int:
        """Return the number of a table that was captured when its rows were mined."""
        return self._number(table)

    def is_unknown_table(self, number: int) -> bool:
        """Check whether a number stands for an unknown table."""
        return number in self._refused

    def _refuse(self, error: SchemaConflict) -> int:
        number = len(self._ids)
        self._ids.append(TableId(namespace="", name=f"?{number}", catalog=self._catalog))
        self._refused[number] = error
        return number

    def find_table(self, number: int) -> TableId:
        """Return the table of a number."""
        return self._ids[number]

    def read_again(self, number: int) -> bool:
        """Check whether a table will be read again as a whole."""
        return self._tables.read_again(self._ids[number])

    def check_table_numbers(self, numbers: Iterable[int]) -> None:
        """Check numbers of tables.

        :raises SchemaConflict: one stands for an unknown table
        """
        for number in numbers:
            if number in self._refused:
                raise self._refused[number]

    def by_object(self, number: int) -> bool:
        """Check whether rows of this table were resolved by their object number."""
        return number in self._objects_of

    def find_stored_columns(self, number: int) -> StoredColumns | None:
        """Return the stored columns of a table as they are now; ``None`` if it does not exist any more."""
        names = [self._objects.find_current_name(n) for n in self._objects_of.get(number, ())] or [self._ids[number]]
        candidates = [
            stored
            for name in names
            if name is not None and (stored := self._lookups.read_stored_columns(name)) is not None
        ]
        return min(candidates, key=lambda s: s.plain, default=None)

    def find_schema(self, number: int, scn: int) -> tuple[TableSchema, int]:
        """Return the schema in force at an SCN, and the SCN at which the next one begins.

        :raises SchemaConflict: it is not known
        """
        for until, schema in self._older.get(number, ()):
            if scn < until:
                return schema, until
        present = self._tables.find_schema(self._ids[number])
        if present is None:
            raise _unknown(self._ids[number], f"SCN {scn}")
        return present, FOREVER

    def list_schemas(self, number: int) -> list[TableSchema]:
        """All schemas of a table that rows may have, as far as they are known."""
        present = self._tables.find_schema(self._ids[number])
        return [schema for _, schema in self._older.get(number, ())] + ([] if present is None else [present])

    def find_missing_schemas(self, numbers: Iterable[int], where: str) -> tuple[list[TableChange], list[int]]:
        """For tables without a known schema: schema changes from the catalog, and the numbers of tables that it does not have any more.

        Such a table was created by a statement without its columns (``CREATE TABLE … AS SELECT``). If it was renamed since, it is read
        whole under its new name.
        """
        changes, gone = [], []
        for number in numbers:
            table = self._ids[number]
            if self._tables.find_schema(table) is None and not self._older.get(number):
                present = self._lookups.read_table(table)
                if present is not None:
                    changes.append(TableChange(type="CREATE", id=table, table=present))
                    continue
                gone.append(number)
                if str(table) not in self._unknown:
                    self._unknown.add(str(table))
                    log.warning(
                        "Changes of %s after %s are skipped: the log does not contain its definition, and the "
                          "table no longer exists in the database.",
                        table, where,
                    )  # fmt: skip
        return changes, gone

    def find_changed_schemas(self, numbers: Iterable[int]) -> list[TableChange]:
        """Return schema changes for tables whose schema in the catalog differs from the known one."""
        changes = []
        for number in numbers:
            table = self._ids[number]
            present, recorded = self._lookups.read_table(table), self._tables.find_schema(table)
            if present is not None and recorded is not None and not recorded.same_structure(present):
                changes.append(TableChange(type="ALTER", id=table, table=present))
        return changes

    def replaced_by(self, changes: Iterable[TableChange]) -> dict[TableId, TableSchema | None]:
        """Return the schemas that the changes replace."""
        return {
            table: self._tables.find_schema(table) for table in (change.previous_id or change.id for change in changes)
        }

    def note_names(self, changes: Iterable[TableChange], number: int, scn: int) -> None:
        """Learn the names of objects from a statement's changes.

        :param number: number of the object that the statement concerns, 0 = not known
        :raises SchemaConflict: rows were attributed to another table
        """
        self._numbers_by_object.clear()
        for change in changes:
            if change.type == "CREATE":
                if number:
                    self._objects.record_object_name(number, change.id)
                continue
            new = None if change.type == "DROP" else change.id
            self._objects.record_rename(change.previous_id or change.id, new, number, scn)

    def keep_replaced_schemas(self, old: Mapping[TableId, TableSchema | None], scn: int) -> None:
        """Keep schemas that were in force until an SCN."""
        for table, schema in old.items():
            if schema is not None and table in self._numbers:
                self._older.setdefault(self._numbers[table], []).append((scn, schema))

    def prune_schemas(self, scn: int) -> None:
        """Drop schemas that ended before an SCN: no buffered row needs them."""
        for number, older in self._older.items():
            self._older[number] = [(until, schema) for until, schema in older if until > scn]

    # -- state that is carried over to the next stream ----------------------------------------------------------------

    def export_state(self) -> dict[str, Any]:
        """Return the state that rows need which wait for their commit, fit for JSON.

        It has the schemas that ended after the rows were written, and how tables were found by their object numbers.
        """
        older = {number: schemas for number, schemas in self._older.items() if schemas}
        return {
            "older": [
                [
                    self._ids[number].model_dump(mode="json"),
                    [[until, s.model_dump(mode="json")] for until, s in schemas],
                ]
                for number, schemas in older.items()
            ],
            "objects": [
                [self._ids[number].model_dump(mode="json"), sorted(objects)]
                for number, objects in self._objects_of.items()
            ],
            "assumed": [
                [number, table.model_dump(mode="json")] for number, table in self._objects.list_assumed_names().items()
            ],
        }

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`export_state` returned."""
        for table, schemas in state["older"]:
            older = self._older.setdefault(self._number(TableId.model_validate(table)), [])
            older += [(until, TableSchema.model_validate(schema)) for until, schema in schemas]
        for table, objects in state["objects"]:
            self._objects_of.setdefault(self._number(TableId.model_validate(table)), set()).update(objects)
        self._objects.restore_assumed_names(
            {number: TableId.model_validate(table) for number, table in state["assumed"]}
        )


def _unclear(name: str, number: int, tables: list[TableId], scn: int) -> SchemaConflict:
    names = ", ".join(map(str, tables[:5])) + (" …" if len(tables) > 5 else "")
    return SchemaConflict(
        f"A change of {name} (object {number}) may belong to {names}: LogMiner's dictionary does not contain the "
        "table as it was at that time, and the log does not identify it.",
        where=f"SCN {scn}",
        safe="Everything before this change is captured.",
        remedy="set log.mining.strategy=redo_log_catalog and run the capture again, or snapshot the tables again with "
        "snapshot.mode=always for one run",
    )


def _of_partition(number: int, table: TableId, scn: int) -> SchemaConflict:
    e = SchemaConflict(
        f"A change of an object that no longer has a name ({number}) may belong to {table}: to a partition that "
        "has been dropped, merged or split since.",
        where=f"SCN {scn}",
        safe="All other tables are captured.",
        remedy="log.mining.strategy=redo_log_catalog tracks partitions",
    )
    e.table = str(table)
    return e


def _unknown(table: TableId, where: str) -> SchemaConflict:
    return SchemaConflict(
        f"The log contains changes of {table}, whose definition is unknown: the table no longer exists in "
        "the database.",
        where=where,
        safe="Everything before these changes is captured.",
        remedy="exclude the table with table.exclude.list",
    )
