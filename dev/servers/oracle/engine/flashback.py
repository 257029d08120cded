"""Time and SCN: the way from one to the other, and whether a flashback to an SCN is possible."""

from typing import Any

from dev.servers.oracle.engine.engine import Engine
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.values import moments


class Flashback:
    """Answers from the times that were noted at commits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def timestamp(self, scn: int) -> str:
        """SCN_TO_TIMESTAMP: ORA-08181 for an SCN that was never reached or is too old to be known."""
        with self._engine.lock:
            row = self._engine.db.execute(
                "SELECT at FROM times WHERE scn <= ? ORDER BY scn DESC LIMIT 1", (scn,)
            ).fetchone()
            if row is None or scn > self._engine.redo.scn:
                raise OraError(8181)
            return str(row[0])

    def scn(self, text: str) -> int:
        """TIMESTAMP_TO_SCN: ORA-08180 for a time before the first one known."""
        moment = moments.read(text)
        at = moments.store_moment(moments.Moment(moment.time, moment.nanos), "TIMESTAMP")
        with self._engine.lock:
            row = self._engine.db.execute(
                "SELECT scn FROM times WHERE at <= ? ORDER BY scn DESC LIMIT 1", (at,)
            ).fetchone()
            if row is None:
                raise OraError(8180)
            return int(row[0])

    def check(self, scn: Any, table_id: int) -> int:
        """The SCN of a flashback query, or why it cannot be: ORA-08181, 01555, 01466."""
        engine = self._engine
        if not isinstance(scn, int) or scn > engine.redo.scn or scn < 1:
            raise OraError(8181)
        if scn < engine.catalog.facts.undo_floor:
            raise OraError(1555, 9)
        table = engine.catalog.by_id(table_id)
        if table is not None and scn < max(table.changed_scn, table.truncated_scn):
            raise OraError(1466)
        return scn

    def expire(self, scn: int) -> None:
        """Throw away what only a flashback to before this SCN could still read."""
        engine = self._engine
        with engine.writing():
            for table in engine.catalog.tables.values():
                engine.db.execute(f"DELETE FROM {table.storage} WHERE _es <= ?", (scn,))
            engine.catalog.facts.undo_floor = scn
            engine.catalog.save(engine.catalog.facts)
