"""Procedures: steps of an administrator at the source so that tables can be captured.

A procedure is planned first, and carried out when that is confirmed.

Capture itself changes nothing at the source. Where a database has to know which tables are captured, a source offers *procedures*: it
says what each would do (:class:`ProcedurePlan`) and does it. Core adds the state of the connector, holds its lease where no run may be
alive meanwhile, and moves its offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId


@dataclass(frozen=True, slots=True)
class ProcedureFlag:
    """Something that a person may say about a procedure.

    :param name: as the command line has it, without its hyphens in front: ``writers-stopped``
    """

    name: str
    help: str


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure for one table.

    :param name: as the command line has it: ``add-table``
    :param help: what it does, one sentence without a full stop
    :param alone: no run of the connector may be alive meanwhile
    """

    name: str
    help: str
    flags: tuple[ProcedureFlag, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class ProcedureContext:
    """State of a connector towards a table.

    :param position: up to here the connector has captured; ``None`` before its first run
    :param selected: the connector's lists select the table
    :param known: the connector has a schema of the table: it captures it
    """

    position: Position | None
    selected: bool
    known: bool


@dataclass(frozen=True, slots=True)
class ProcedurePlan:
    """Plan of a procedure: the steps that it would take. Nothing has happened yet.

    :param flags: names of the flags that were set
    :param steps: in their order; a statement is shown as it will be run
    :param consequences: what people must know before they confirm, one sentence each
    :param problems: why it cannot be done, each with what can be done instead; empty if it can
    """

    procedure: str
    table: TableId
    flags: frozenset[str]
    steps: tuple[str, ...]
    consequences: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "procedure": self.procedure,
            "table": str(self.table),
            "flags": sorted(self.flags),
            "steps": list(self.steps),
            "consequences": list(self.consequences),
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class ProcedureResult:
    """Result of a procedure that the connector has to know.

    :param position: from where it continues; ``None`` = its position stays
    :param read_again: it has to read the table again, whole
    """

    position: Position | None = None
    read_again: bool = False
