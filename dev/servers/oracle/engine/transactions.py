"""Open transactions, with their steps, savepoints and locks."""

from dataclasses import dataclass, field

from dev.servers.oracle.engine.catalog import Table
from dev.servers.oracle.redo.redo import Xid

ROW_SHARE, ROW_EXCLUSIVE, SHARE, SHARE_ROW_EXCLUSIVE, EXCLUSIVE = range(2, 7)
COMPATIBLE = {
    ROW_SHARE: {ROW_SHARE, ROW_EXCLUSIVE, SHARE, SHARE_ROW_EXCLUSIVE},
    ROW_EXCLUSIVE: {ROW_SHARE, ROW_EXCLUSIVE},
    SHARE: {ROW_SHARE, SHARE},
    SHARE_ROW_EXCLUSIVE: {ROW_SHARE},
    EXCLUSIVE: set(),
}
NO_TRANSACTION = -1


class LockBlocked(Exception):
    """A row or table belongs to another transaction: wait for it and start the statement again."""

    def __init__(self, holder: "Transaction") -> None:
        self.holder = holder


@dataclass(slots=True)
class UndoStep:
    """A step of a transaction that can be taken back. Kinds: I, U, D for rows, L for a lock alone.

    Inserts that follow each other are one entry of several rows: their numbers, versions and records follow each other.
    """

    kind: str
    table: Table
    row: int
    old: int = 0
    new: int = 0
    record: int = 0
    count: int = 1

    def continues(self, earlier: "UndoStep") -> bool:
        """Check whether these inserts begin where the earlier ones end."""
        return (
            self.kind == earlier.kind == "I"
            and self.table is earlier.table
            and self.row == earlier.row + earlier.count
            and self.new == earlier.new + earlier.count
            and self.record == earlier.record + earlier.count
        )


@dataclass
class Transaction:
    """An open transaction."""

    xid: Xid
    thread: int
    user: str
    started_scn: int
    started_at: str
    client: str | None = None
    undo: list[UndoStep] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)
    sealed: int = 0
    """The length of ``undo`` at the newest savepoint: entries before it stay as they are."""
    statement: int = 0
    """The length of ``undo`` when the running statement began."""
    unchecked: list[tuple[Table, int, set[int] | None]] = field(default_factory=list)
    """Rows of the running statement whose keys may be those of others, with the columns that have changed."""
    tables: dict[int, Table] = field(default_factory=dict)
    table_locks: dict[int, int] = field(default_factory=dict)
    waits_for: "Transaction | None" = None
    has_start_record: bool = False
    """True if its START record is written."""

    @property
    def id(self) -> int:
        return self.xid.serial
