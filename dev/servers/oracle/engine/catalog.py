"""The dictionary: users with what they may do, tables with their columns in every version, sequences."""

import dataclasses
import pickle
import sqlite3
from dataclasses import dataclass, field

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.values.datatypes import DataType, qualify_names

FIRST_OBJECT = 73_000
SYSTEM_USERS = ("SYS", "SYSTEM")


@dataclass
class Column:
    """A column; its ``id`` never changes and is never used again in this table."""

    id: int
    name: str
    type: DataType
    nullable: bool = True
    default: str | None = None
    generated: str | None = None
    """How an identity column is filled: ALWAYS, BY DEFAULT or BY DEFAULT ON NULL."""
    comment: str | None = None
    unused: bool = False


@dataclass
class Key:
    """A primary key (kind P), a unique constraint (U), a unique index (I) or a plain index (X)."""

    name: str
    kind: str
    columns: list[str]
    enabled: bool = True
    deferred: bool = False
    """``DEFERRABLE INITIALLY DEFERRED``: it is checked at the commit, others at the end of each statement."""


@dataclass
class Table:
    """A table in a version of its structure."""

    id: int
    owner: str
    name: str
    container: str
    columns: list[Column]
    data_id: int = 0
    version: int = 1
    next_column: int = 1
    keys: list[Key] = field(default_factory=list)
    log_groups: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """Supplemental logging: name, type as LOG_GROUP_TYPE shows it, and the columns of a user's own group."""
    created_scn: int = 0
    changed_scn: int = 0
    """When the structure last changed: an older flashback is refused."""
    created_at: str = ""
    comment: str | None = None
    dropped: bool = False
    organization: str = "HEAP"
    """Or ``INDEX``, or ``PARTITIONED``: in one partition, of which rows in the redo have the number."""
    checks: list[tuple[str, str]] = field(default_factory=list)
    private: bool = False
    """True if it is a private temporary table."""
    data_ids_before: list[tuple[int, int]] = field(default_factory=list)
    """Data object numbers that TRUNCATE has ended, each with its SCN."""

    @property
    def truncated_scn(self) -> int:
        """The SCN of the last TRUNCATE, 0 without one: no flashback query reaches back behind it."""
        return self.data_ids_before[-1][0] if self.data_ids_before else 0

    def data_id_at(self, scn: int) -> int:
        """The data object number that rows had: the redo has the one of its moment."""
        return next((data_id for until, data_id in self.data_ids_before if scn < until), self.data_id)

    @property
    def segment_id(self) -> int:
        """The number of the object that its rows are in: the table, its partition, or the index of its key."""
        return {"INDEX": self.id * 100, "PARTITIONED": self.id * 100 + 50}.get(self.organization, self.id)

    @property
    def live(self) -> list[Column]:
        """The columns that statements see."""
        return [column for column in self.columns if not column.unused]

    def column(self, name: str) -> Column:
        for column in self.live:
            if column.name == name:
                return column
        raise OraError(904, qualify_names(name))

    def has(self, name: str) -> bool:
        return any(column.name == name for column in self.live)

    @property
    def primary_key(self) -> Key | None:
        return next((key for key in self.keys if key.kind == "P"), None)

    @property
    def storage(self) -> str:
        """The SQLite table that holds the rows."""
        return f"t{self.id}"

    @property
    def full_name(self) -> str:
        return qualify_names(self.owner, self.name)

    def logs(self, group_type: str) -> bool:
        return any(kind == group_type for _, kind, _ in self.log_groups)


@dataclass
class User:
    """An account."""

    name: str
    password: str
    grants: set[str] = field(default_factory=set)
    common: bool = False


@dataclass
class Sequence:
    """A sequence."""

    owner: str
    name: str
    container: str
    value: int
    increment: int


@dataclass
class Facts:
    """Facts about the database as a whole."""

    supplemental: set[str] = field(default_factory=set)
    """MIN, ALL, PK, UI, FK; of all containers."""
    supplemental_inside: dict[str, set[str]] = field(default_factory=dict)
    """Pluggable database → what it has besides. Its own V$DATABASE shows it, and that of the root does not."""
    archiving: bool = True
    resetlogs_scn: int = 1
    resetlogs_time: str = ""
    next_object: int = FIRST_OBJECT
    undo_floor: int = 0
    """Flashback to an SCN below this one is refused."""
    parameters: dict[str, str] = field(default_factory=dict)


class Catalog:
    """All of it, kept in one SQLite table."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.users: dict[str, User] = {}
        self.tables: dict[tuple[str, str, str], Table] = {}
        self.sequences: dict[tuple[str, str, str], Sequence] = {}
        self.facts = Facts()
        self.history: dict[tuple[int, int], Table] = {}
        """Every version of every table: what a dictionary in the redo logs knows."""
        connection.execute(
            "CREATE TABLE IF NOT EXISTS dictionary (kind TEXT, key TEXT, body BLOB, PRIMARY KEY (kind, key))"
        )
        for kind, body in connection.execute("SELECT kind, body FROM dictionary"):
            self._load(kind, pickle.loads(body))

    def _load(self, kind: str, item: object) -> None:
        if isinstance(item, User):
            self.users[item.name] = item
        elif isinstance(item, Sequence):
            self.sequences[item.container, item.owner, item.name] = item
        elif isinstance(item, Facts):
            self.facts = item
        elif isinstance(item, Table):
            if kind == "version":
                self.history[item.id, item.version] = item
            elif not item.dropped:
                self.tables[item.container, item.owner, item.name] = item

    def save(self, item: User | Sequence | Facts | Table) -> None:
        """Keep a new or changed entry."""
        kind, key = type(item).__name__.lower(), ""
        if isinstance(item, User):
            key = item.name
            self.users[item.name] = item
        elif isinstance(item, Sequence):
            key = f"{item.container}.{item.owner}.{item.name}"
            self.sequences[item.container, item.owner, item.name] = item
        elif isinstance(item, Table):
            key = str(item.id)
            self._keep_version(item)
        self._write(kind, key, item)

    def _keep_version(self, table: Table) -> None:
        frozen = dataclasses.replace(
            table, columns=[dataclasses.replace(column) for column in table.columns], keys=list(table.keys), log_groups=list(table.log_groups)
        )  # fmt: skip
        self.history[table.id, table.version] = frozen
        self._write("version", f"{table.id}.{table.version}", frozen)

    def _write(self, kind: str, key: str, item: object) -> None:
        self._connection.execute("INSERT OR REPLACE INTO dictionary VALUES (?, ?, ?)", (kind, key, pickle.dumps(item)))

    def place(self, table: Table) -> None:
        """Make a table known under its name."""
        self.tables[table.container, table.owner, table.name] = table
        self.save(table)

    def remove(self, table: Table) -> None:
        """Forget a table; its versions stay."""
        del self.tables[table.container, table.owner, table.name]
        table.dropped = True
        self._write("table", str(table.id), table)

    def remove_sequence(self, sequence: Sequence) -> None:
        del self.sequences[sequence.container, sequence.owner, sequence.name]
        key = f"{sequence.container}.{sequence.owner}.{sequence.name}"
        self._connection.execute("DELETE FROM dictionary WHERE kind = 'sequence' AND key = ?", (key,))

    def new_object(self) -> int:
        """The next object number."""
        self.facts.next_object += 1
        self.save(self.facts)
        return self.facts.next_object

    def by_id(self, object_id: int) -> Table | None:
        return next((table for table in self.tables.values() if table.id == object_id), None)
