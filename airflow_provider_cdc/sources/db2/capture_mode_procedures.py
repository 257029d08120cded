"""Puts tables into capture mode, takes them out of it, and gives them other change tables.

The steps are those of the Debezium Db2 connector document, "Updating schemas for tables in capture mode" and "Management".

The statements are those of the documents: ``ADDTABLE``, ``REMOVETABLE``, ``ASNCDCSERVICES``. The steps that people forget who type them are done here: a check
that all of the table was captured before its change table goes, a wait until the agent has begun with the new one before the procedure ends, and
a notification of the connector.

Each step commits. A procedure that failed in the middle is started again, and continues from the state that it finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from airflow_provider_cdc.core.errors import CdcError, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source_procedures import Procedure, ProcedureContext, ProcedurePlan, ProcedureResult
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import check_mark_grant
from airflow_provider_cdc.sources.db2.asn.table_registrations import ACTIVE, TableRegistration
from airflow_provider_cdc.sources.db2.capture_procedure_catalog import ADD_TABLE, REMOVE_TABLE, SWITCH, WRITERS_STOPPED
from airflow_provider_cdc.sources.db2.change_table_bounds import last_commit
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error, connect_database, translate_driver_errors
from airflow_provider_cdc.sources.db2.error_translation import FORBIDDEN
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_text
from airflow_provider_cdc.sources.db2.privileges import Db2AccountPrivileges, build_grant_statement
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.schema.never_captured_tables import is_system
from airflow_provider_cdc.sources.db2.snapshot.snapshot_locks import wait_for_agent
from airflow_provider_cdc.sources.relational.sql_quoting import quote_literal


@dataclass(frozen=True, slots=True)
class TableCaptureState:
    """Facts that the database has of a table.

    :param structure: ``None`` = the table does not exist
    :param registration: ``None`` = it is not in capture mode
    :param newest: LSN of the last commit in its change table; ``None`` = the change table is empty
    """

    structure: TableSchema | None
    registration: TableRegistration | None
    newest: bytes | None


class CaptureModeProcedures:
    """Plans the procedures for one table, and carries them out.

    :param table: the table, which need not exist
    """

    def __init__(self, config: Db2Config, table: TableId) -> None:
        self._config, self._table, self._schema = config, table, config.capture_schema
        name = f"{quote_literal(table.namespace)}, {quote_literal(table.name)}"
        self._add, self._remove = f"CALL {self._schema}.ADDTABLE({name})", f"CALL {self._schema}.REMOVETABLE({name})"
        self._reinit = f"VALUES {self._schema}.ASNCDCSERVICES('reinit', 'asncdc')"
        self._deactivate = (
            f"UPDATE {self._schema}.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_OWNER = {quote_literal(table.namespace)} "
            f"AND SOURCE_TABLE = {quote_literal(table.name)}"
        )
        self._patience_s = config.snapshot_agent_timeout_ms / 1000

    # -- plans --------------------------------------------------------------------------------------------------------

    def plan_procedure(self, procedure: Procedure, flags: frozenset[str], context: ProcedureContext) -> ProcedurePlan:
        """Plan a procedure by the present state of the database."""
        with translate_driver_errors(self._config, str(self._table)), _opened(self._config) as connection:
            facts = self._facts(connection)
        planners = {ADD_TABLE.name: self._adding, REMOVE_TABLE.name: self._removing, SWITCH.name: self._switching}
        steps, consequences, problems = planners[procedure.name](facts, flags, context)
        return ProcedurePlan(procedure.name, self._table, flags, tuple(steps), tuple(consequences), tuple(problems))

    def _adding(
        self, facts: TableCaptureState, _: frozenset[str], standing: ProcedureContext
    ) -> tuple[list[str], list[str], list[str]]:
        problems, consequences = [], []
        if facts.structure is None:
            problems.append(
                f"The table {self._table} does not exist. Names without double quotes are folded to upper case."
            )
        if is_system(self._table, self._config):
            problems.append("Tables of Db2 itself and of the capture agent cannot be captured.")
        if (registration := facts.registration) is not None:
            problems.append(
                f"The table is already in capture mode (change table {registration.change_table_name}). {SWITCH.name} "
                "gives it a new change table."
            )
        if facts.structure is not None and not facts.structure.key:
            consequences.append("The table has no key: incremental snapshots and targets treat its rows as a multiset.")
        consequences.append(
            (
                "The connector captures the table from then on; existing rows are read as "
                "schema.change.rewrite.mode defines."
            )
            if standing.selected
            else "The connector does not select the table yet: it is captured when table.include.list selects it."
        )
        return self._steps_of_adding(), consequences, problems

    def _removing(
        self, facts: TableCaptureState, _: frozenset[str], standing: ProcedureContext
    ) -> tuple[list[str], list[str], list[str]]:
        problems = []
        if facts.registration is None:
            problems.append("The table is not in capture mode.")
        if standing.selected and standing.known and facts.structure is not None:
            problems.append(
                "The connector captures the table and would stop with an error. First remove the table from the "
                "selection with table.include.list or table.exclude.list, and let a run continue until it has "
                "captured all remaining changes."
            )
        consequences = ["The change table is dropped with all its changes, for all its readers."]
        return [self._remove, self._reinit], consequences, problems

    def _switching(
        self, facts: TableCaptureState, flags: frozenset[str], standing: ProcedureContext
    ) -> tuple[list[str], list[str], list[str]]:
        problems = []
        position, registration = standing.position, facts.registration
        if facts.structure is None:
            problems.append(
                f"The table {self._table} does not exist. Names without double quotes are folded to upper case."
            )
        if not isinstance(position, Db2Position) or not standing.known:
            problems.append(
                f"The connector does not capture the table yet. Use {REMOVE_TABLE.name} and {ADD_TABLE.name}."
            )
            return [], [], problems
        is_registered_again = registration is None or is_new(registration, position)
        if not is_registered_again and facts.newest is not None and not position.has_captured(facts.newest):
            problems.append(
                f"The change table has changes up to LSN {lsn_text(facts.newest)} that are not captured yet: "
                "let the capture run until it has reached that LSN."
            )
        steps = [] if is_registered_again else [self._deactivate, self._reinit, self._remove]
        # where it was registered again, the agent may not have been informed yet
        steps += (
            self._steps_of_adding()
            if registration is None or not is_registered_again
            else [self._reinit, self._waiting]
        )
        steps.append("Record in the connector's offset where the new change table starts.")
        if WRITERS_STOPPED.name in flags:
            consequences = [
                (
                    "The table is not snapshotted again: a row that changes before this procedure ends is LOST. "
                    "Keep the writers of the table stopped."
                )
            ]
        else:
            consequences = [
                "The next run takes a snapshot of the whole table, so that no row is lost; the snapshot starts "
                f"with a truncate event. With --{WRITERS_STOPPED.name} no snapshot is taken; use it only if no row "
                "changes in the meantime."
            ]
        return steps, consequences, problems

    def _steps_of_adding(self) -> list[str]:
        return [self._add, self._reinit, self._waiting]

    @property
    def _waiting(self) -> str:
        return f"Wait up to {self._patience_s:g} s until the capture agent has started to capture the table."

    # -- carrying out -------------------------------------------------------------------------------------------------

    def carry_out(
        self, plan: ProcedurePlan, context: ProcedureContext, report_step: Callable[[str], None]
    ) -> ProcedureResult:
        """Carry out a plan."""
        done: list[str] = []

        def step(text: str, action: Callable[[], None]) -> None:
            report_step(text)
            action()
            done.append(text)

        try:
            with translate_driver_errors(self._config, str(self._table)), _opened(self._config) as connection:
                return self._carry_out(connection, plan, context, step)
        except CdcError as e:
            raise PrerequisiteError(
                f"{plan.procedure} failed for {self._table}: {e.message}",
                where=e.where or str(self._table),
                safe=("Completed steps: " + "; ".join(done) + ". " if done else "") + "The offset is untouched.",
                remedy=f"{e.remedy + '; then ' if e.remedy else ''}run {plan.procedure} again: it resumes at the "
                "failed step",
            ) from e

    def _carry_out(
        self,
        connection: Db2Connection,
        plan: ProcedurePlan,
        standing: ProcedureContext,
        step: Callable[[str, Callable[[], None]], None],
    ) -> ProcedureResult:
        position = standing.position
        if self._waiting in plan.steps or WRITERS_STOPPED.name in plan.flags:
            check_mark_grant(connection, self._config)
        if plan.procedure == SWITCH.name and self._remove in plan.steps:
            assert isinstance(position, Db2Position)
            self._drained(connection, position, wait=WRITERS_STOPPED.name in plan.flags)
        for text in plan.steps:
            if text == self._waiting:
                step(text, lambda: self._begun(connection))
            elif text.startswith(("CALL", "UPDATE", "VALUES")):
                step(text, lambda text=text: self._run(connection, text))  # type: ignore[misc]
        start = self._facts(connection).registration
        if start is not None and (missing := self._unreadable(connection, start)):
            step(missing, lambda: None)
        if plan.procedure != SWITCH.name:
            return ProcedureResult()
        assert isinstance(position, Db2Position)
        assert start is not None
        acknowledged = {**position.acknowledged, str(self._table): start.old or b""}
        noted = replace(
            position, acknowledged=acknowledged, created_us={**position.created_us, str(self._table): start.created_us}
        )
        return ProcedureResult(noted.advance_commit(b""), read_again=WRITERS_STOPPED.name not in plan.flags)

    def _run(self, connection: Db2Connection, statement: str) -> None:
        if statement.startswith("VALUES"):
            connection.fetch_rows(statement)
        elif statement in (self._add, self._remove):
            # of a literal in a CALL whose characters have two bytes each, as a name in Cyrillic, the driver swaps the bytes: bound values come as they are
            called = "ADDTABLE" if statement == self._add else "REMOVETABLE"
            connection.execute(f"CALL {self._schema}.{called}(?, ?)", self._table.namespace, self._table.name)
        else:
            connection.execute(statement)
        connection.commit()

    def _drained(self, connection: Db2Connection, position: Db2Position, *, wait: bool) -> None:
        """Make sure that everything of the change table is captured.

        :param wait: first for the agent, until it has published everything that has been committed
        """
        if wait:
            wait_for_agent(connection, self._config)
        newest = self._facts(connection).newest
        if newest is not None and not position.has_captured(newest):
            raise PrerequisiteError(
                f"Changes of {self._table} up to LSN {lsn_text(newest)} are not captured yet.",
                safe="The change table is unchanged.",
                remedy="let the capture run until it has reached that LSN",
            )

    def _begun(self, connection: Db2Connection) -> None:
        """Wait until the agent has reread the registrations and published a mark written afterwards, and so captures the table."""
        wait_for_agent(connection, self._config)
        registration = self._facts(connection).registration
        if registration is None or registration.state != ACTIVE:
            raise PrerequisiteError(
                f"The capture agent does not capture {self._table}: "
                + (
                    "it has no registration."
                    if registration is None
                    else f"its registration has STATE = {registration.state}."
                ),
                safe="The offset is untouched.",
                remedy="check the log of the agent for the cause, and check that the agent runs (VALUES "
                f"{self._schema}.ASNCDCSERVICES('status', 'asncdc'))",
            )

    def _unreadable(self, connection: Db2Connection, registration: TableRegistration) -> str:
        """Describe the privilege that a new change table still needs for the account; empty if none."""
        change = TableId(
            catalog=self._table.catalog, namespace=registration.change_owner, name=registration.change_table
        )
        try:
            if Db2AccountPrivileges(connection, self._config).has_privilege("SELECT", change):
                return ""
        finally:
            connection.rollback()
        return (
            "The account may not read the change table yet; an administrator must run: "
            f"{build_grant_statement('SELECT', change, self._config)}"
        )

    def _facts(self, connection: Db2Connection) -> TableCaptureState:
        try:
            catalog = Db2CatalogReader(connection, self._config)
            structure = catalog.read_table_schemas([self._table]).get(self._table)
            registration = catalog.list_registrations().get(self._table)
            return TableCaptureState(structure, registration, self._newest(connection, registration))
        finally:
            connection.rollback()

    def _newest(self, connection: Db2Connection, registration: TableRegistration | None) -> bytes | None:
        if registration is None or registration.altered is None or registration.new is not None:
            return None if registration is None else registration.new
        try:
            return last_commit(connection, registration)
        except Db2Error as e:
            if e.code not in FORBIDDEN:
                raise
            return None  # the account may not read it, so it does not capture it yet


def is_new(registration: TableRegistration, position: Db2Position) -> bool:
    """Check whether a change table, made again, lacks changes that a reader at a position still needs."""
    return position.is_another(str(registration.table), registration.created_us) or (
        registration.old is not None and not position.is_table_complete(str(registration.table), registration.old)
    )


def _opened(config: Db2Config) -> contextlib.closing[Db2Connection]:
    return contextlib.closing(connect_database(config))
