"""Selection of the change tables to read, and checks that they hold everything that is to be read.

No loss is silent. A known, captured table must have an active registration, the same change table as before, and every change after the position.
Otherwise an error says which changes are lost, and names the repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.db2.asn.table_registrations import ACTIVE, STOPPED, TableRegistration
from airflow_provider_cdc.sources.db2.capture_procedure_catalog import SWITCH, WRITERS_STOPPED
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_text
from airflow_provider_cdc.sources.relational.sql_quoting import quote_literal

_SAFE = "Everything up to the position is captured; the offset is untouched."


class ConnectorRegistrations:
    """Registrations that the agent captures, as far as this connector is concerned.

    :param schema: quoted name of the schema of the agent's control tables
    :param connector: its name, for the commands in errors
    """

    def __init__(self, tables: CapturedTableSchemas, schema: str, connector: str) -> None:
        self._tables, self._schema, self._connector = tables, schema, connector
        self.registered: Mapping[TableId, TableRegistration] = {}

    def list_known_tables(self) -> list[TableId]:
        """List the tables whose changes are captured at the present position."""
        return [table for table in self._tables.list_known_tables() if self._tables.is_captured(table)]

    def list_unregistered_tables(self) -> list[TableId]:
        """Known tables that are not registered."""
        return [table for table in self.list_known_tables() if table not in self.registered]

    def list_new_registrations(self) -> list[TableRegistration]:
        """Tables to capture whose registrations are active and which are not known yet."""
        return [
            registration
            for registration in self.registered.values()
            if registration.state == ACTIVE
            and registration.altered is not None
            and self._tables.find_schema(registration.table) is None
            and self._tables.is_captured(registration.table)
        ]

    def check_registrations(self, position: Db2Position) -> list[TableRegistration]:
        """List the known tables, after checking that each change table holds all changes after a position.

        :raises PositionLost: a change table does not hold all changes after the position
        :raises PrerequisiteError: a table is not captured any more
        """
        registrations = []
        for table in self.list_known_tables():
            registration = self.registered.get(table)
            if registration is None:
                raise self.registration_removed(table, position)
            self._check(registration, position)
            registrations.append(registration)
        return registrations

    def list_readable_registrations(self) -> list[TableRegistration]:
        """List the known tables that are registered and have a change table."""
        registrations = [self.registered.get(table) for table in self.list_known_tables()]
        return [
            registration
            for registration in registrations
            if registration is not None and registration.altered is not None
        ]

    def list_unreported_tables(self) -> list[TableRegistration]:
        """List the known tables for which the agent fills no ``CD_NEW_SYNCHPOINT``."""
        return [registration for registration in self.list_readable_registrations() if registration.new is None]

    def list_unchanged_tables(self, reading: Iterable[TableRegistration]) -> list[TableRegistration]:
        """List the known tables that have no changes to read."""
        busy = {registration.table for registration in reading}
        return [self.registered[t] for t in self.list_known_tables() if t not in busy and t in self.registered]

    def check_starts(
        self, starts: Mapping[TableId, bytes], position: Db2Position, read: Iterable[TableRegistration]
    ) -> None:
        """Make sure that nothing was pruned while change tables were read.

        :param starts: tables whose change tables do not hold everything after the position
        :param position: from which they were read
        :param read: the registrations whose change tables were read
        """
        for registration in read:
            if (start := starts.get(registration.table)) is not None:
                self._check_start(registration, start, position)

    def registration_removed(self, table: TableId, position: Db2Position) -> PrerequisiteError:
        """Return the error of a known table that has no registration, though it exists."""
        return PrerequisiteError(
            f"The capture agent no longer captures {table}: its registration is gone. Changes that are made "
            "now are lost.",
            where=f"{table}, {position}",
            safe=_SAFE,
            remedy="exclude the table from capture (table.include.list), or put it back into capture mode: "
            f"{read_again(self._connector, table)}; the command calls "
            f"{self._schema}.ADDTABLE({quote_literal(table.namespace)}, {quote_literal(table.name)})",
        )

    def _check(self, registration: TableRegistration, position: Db2Position) -> None:
        if registration.state != ACTIVE:
            raise self._inactive(registration, position)
        if registration.altered is None:
            raise change_table_gone(registration, str(position), self._connector)
        if position.is_another(str(registration.table), registration.created_us):
            raise self._registered_again(registration, position)
        if registration.old is not None:
            self._check_start(registration, registration.old, position)

    def _check_start(self, registration: TableRegistration, start: bytes, position: Db2Position) -> None:
        if position.is_table_complete(str(registration.table), start):
            return
        raise PositionLost(
            f"The change table {registration.change_table_name} contains changes of {registration.table} only after LSN "
            f"{lsn_text(start)}. Changes between the position and that LSN may be lost: they were pruned before "
            "they were read, or the table was registered again.",
            where=f"{registration.table}, {position}",
            safe=_SAFE,
            remedy=f"run {read_again(self._connector, registration.table)}; if no row has changed in between, --writers-stopped "
            "avoids the snapshot. If many tables are affected, set snapshot.mode=when_needed for one run to "
            "snapshot all tables again. To prevent this: let the agent keep changes for longer (RETENTION_LIMIT "
            f"in {self._schema}.IBMSNAP_CAPPARMS, minutes)",
        )

    def _registered_again(self, registration: TableRegistration, position: Db2Position) -> PositionLost:
        return PositionLost(
            f"{registration.table} was registered again: its change table {registration.change_table_name} is not the one that was read up to the position. Changes made in between "
            "may be lost.",
            where=f"{registration.table}, {position}",
            safe=_SAFE,
            remedy=f"run {read_again(self._connector, registration.table)}; if no row has changed in between, "
            "--writers-stopped avoids the snapshot",
        )

    def _inactive(self, registration: TableRegistration, position: Db2Position) -> PrerequisiteError:
        why = f" after error {registration.reason}" if registration.reason else ""
        how = f"stopped{why}" if registration.state == STOPPED else f"inactive (STATE = {registration.state})"
        owner, name = quote_literal(registration.table.namespace), quote_literal(registration.table.name)
        return PrerequisiteError(
            f"The registration of {registration.table} is {how}: the capture agent does not capture its changes.",
            where=f"{registration.table}, {position}",
            safe=_SAFE,
            remedy=f"fix the cause, which is in the log of the agent; UPDATE {self._schema}.IBMSNAP_REGISTER SET STATE = "
            f"'A' WHERE SOURCE_OWNER = {owner} AND SOURCE_TABLE = {name}; VALUES "
            f"{self._schema}.ASNCDCSERVICES('reinit', 'asncdc'). If rows have changed in the meantime, run "
            f"{read_again(self._connector, registration.table)}",
        )


def read_again(connector: str, table: TableId) -> str:
    """Return the command that gives a table another change table."""
    command = format_cdc_command(f"db2 {SWITCH.name}", connector, table, confirm=connector)
    return f"`{command}` (without --{WRITERS_STOPPED.name}), which snapshots only this table again"


def change_table_gone(registration: TableRegistration, where: str, connector: str) -> PrerequisiteError:
    """Return the error of a registered table whose change table does not exist."""
    return PrerequisiteError(
        f"The change table {registration.change_table_name} of {registration.table} no longer exists, although the table is registered.",
        where=f"{registration.table}, {where}",
        safe=_SAFE,
        remedy=f"register the table again: REMOVETABLE, ADDTABLE, reinit; run {read_again(connector, registration.table)}",
    )
