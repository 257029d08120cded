"""The table of an object number in the log.

An object keeps its number when its table is renamed or changed. The catalog has the current names only, so a name from the log itself, or
from the catalog as of the row's SCN, takes precedence. The current name is used if there is no other. If the log later renames another
object to this name, rows were attributed to the wrong table: that is an error.
"""

from __future__ import annotations

import logging

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups

log = logging.getLogger(__name__)


def is_unnamed(owner: str | None, name: str | None) -> bool:
    """Check whether LogMiner has no name for a table, or only its name in the recycle bin."""
    return not owner or not name or owner == "UNKNOWN" or name.startswith(("OBJ# ", "BIN$"))


class ObjectNames:
    """Object numbers and the names of their tables.

    :ivar passed_over: unknown object → number of its rows that were skipped
    """

    def __init__(self, tables: CapturedTableSchemas, lookups: StreamLookups) -> None:
        self._tables, self._lookups = tables, lookups
        self._learned: dict[int, TableId] = {}
        self._assumed: dict[int, TableId] = {}
        self._present: dict[int, TableId | None] = {}
        self._gone: set[int] = set()
        self.passed_over: dict[int, int] = {}

    def load_object_numbers(self) -> None:
        """Read the object numbers of the captured tables: some may be dropped before their rows are read.

        A database may have a hundred thousand tables that are not captured. Those are looked up one by one, when a row asks for it.
        """
        captured = [t for t in self._tables.list_known_tables() if self._tables.is_captured(t)]
        self._present = {**self._lookups.read_object_numbers(captured), **self._present}

    def record_object_name(self, number: int, table: TableId) -> None:
        """Record that the log names the table of an object."""
        self._learned[number] = table
        self._gone.discard(number)

    def is_name_certain(self, number: int) -> bool:
        """Check whether the object's table is certain.

        It is if the log, or the catalog as of the row's SCN, names the object's table or shows that it is not captured.
        """
        return number in self._learned or number in self._gone

    def find_table(self, number: int, shown: TableId | None, scn: int) -> TableId | None:
        """Return the table of an object; ``None`` if it is not known.

        :param shown: LogMiner's name of it, if it has one
        """
        if (learned := self._learned.get(number)) is not None or number in self._gone:
            return learned
        readable, then = self._lookups.object_at(number, scn)
        if readable and then is not None and not is_unnamed(then.namespace, then.name):
            self._learned[number] = then
            return then
        assumed = (self._now(number) if shown is None else self._present.get(number)) or shown
        if assumed is not None:
            self._assumed[number] = assumed
        return assumed

    def list_assumed_names(self) -> dict[int, TableId]:
        """Objects whose rows were taken for those of a table by its current name, without a word of the log."""
        return {number: table for number, table in self._assumed.items() if not self.is_name_certain(number)}

    def restore_assumed_names(self, tables: dict[int, TableId]) -> None:
        """Rows of these objects were taken for those of these tables."""
        self._assumed |= tables

    def find_current_name(self, number: int) -> TableId | None:
        """Return the current name of an object."""
        return self._lookups.table_of_object(number)

    def find_vanished_tables(self) -> list[TableId]:
        """Return captured tables that do not exist any more, and whose object number is not known."""
        if self._without_number():
            self.load_object_numbers()
        return self._without_number()

    def _without_number(self) -> list[TableId]:
        numbered = {*self._present.values(), *self._learned.values()}
        return [t for t in self._tables.list_known_tables() if t not in numbered and self._tables.is_captured(t)]

    def _now(self, number: int) -> TableId | None:
        """Return the name of an object when it was first asked for."""
        if number not in self._present:
            self._present[number] = self._lookups.table_of_object(number)
        return self._present[number]

    def pass_over(self, number: int, rows: int, name: str) -> None:
        if number not in self.passed_over:
            log.warning(
                "Changes of %s (object %d) are skipped: the table no longer exists, and no captured table "
                        "is missing.",
                name, number,
            )  # fmt: skip
        self.passed_over[number] = self.passed_over.get(number, 0) + rows

    def record_rename(self, old: TableId, new: TableId | None, number: int, scn: int) -> None:
        """Record that a statement in the log changes the name of a table.

        :param new: its new name; ``None`` if it is not captured any more
        :param number: its object number, 0 = not known
        :raises SchemaConflict: its rows, or rows of the other name, were attributed to another table
        """
        for object_, assumed in self._assumed.items():
            if object_ in self._learned or object_ in self._gone:
                continue
            # another object may also be a partition of the table, unless the table is known to have another name now
            elsewhere = (self._now(number) or old) != old
            if assumed != old if object_ == number else assumed == new != old or (assumed == old and elsewhere):
                raise _mistaken(object_, assumed, old, new, scn)
        for object_ in [n for n, table in self._learned.items() if table == old or n == number] + [number]:
            if new is not None and object_:
                self.record_object_name(object_, new)
            elif object_:
                self._learned.pop(object_, None)
                self._gone.add(object_)


def _mistaken(object_: int, assumed: TableId, old: TableId, new: TableId | None, scn: int) -> SchemaConflict:
    tables = f"{old} and {new or assumed}" if (new or assumed) != old else str(old)
    return SchemaConflict(
        f"{old} was renamed, and earlier changes of object {object_} were treated as changes of {assumed}, a "
        "table that now has the name.",
        where=f"{new or old}, SCN {scn}",
        safe=f"All tables except {tables} are captured correctly.",
        remedy=f"snapshot {tables} again with snapshot.mode=always for one run; "
        "log.mining.strategy=redo_log_catalog tracks such renames",
    )
