"""The procedures of the Db2 source, by which tables come into capture mode, go out of it, and get another change table.

This module is read by each call of ``airflow``: it must stay light. The steps of the procedures are in :mod:`.capture_mode_procedures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from airflow_provider_cdc.core.spi.source_procedures import Procedure, ProcedureFlag

ADD_TABLE: Final = Procedure("add-table", "Put a table into capture mode: ADDTABLE, reinit, wait for the capture agent")
REMOVE_TABLE: Final = Procedure("remove-table", "Take a table out of capture mode: REMOVETABLE, reinit")
WRITERS_STOPPED: Final = ProcedureFlag(
    "writers-stopped",
    "no row of the table changes between the ALTER statement and the end of this procedure, so the table is "
    "not snapshotted again",
)
SWITCH: Final = Procedure(
    "switch-capture-instance",
    "Give an altered table a new change table, or declare that its existing change table is new",
    flags=(WRITERS_STOPPED,),
    alone=True,
)

PROCEDURES: Final[Mapping[str, Procedure]] = {p.name: p for p in (ADD_TABLE, REMOVE_TABLE, SWITCH)}
