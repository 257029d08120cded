"""The parts of a session and its database that statements, views and LogMiner use."""

import datetime
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dev.servers.oracle.engine.catalog import Column, Table, User
from dev.servers.oracle.engine.engine import Engine
from dev.servers.oracle.engine.flashback import Flashback
from dev.servers.oracle.engine.privileges import Privileges
from dev.servers.oracle.engine.transactions import Transaction
from dev.servers.oracle.redo.benchmark_rows import Plan
from dev.servers.oracle.redo.redo import LogFile
from dev.servers.oracle.sql.queries import Columns, Compiled, Queries, Resolver
from dev.servers.oracle.sql.statements import Statement
from dev.servers.oracle.values.moments import Nls
from dev.servers.oracle.wire.statements import Outcome


class Names(Resolver, Protocol):
    """The meaning of names for the session."""

    def table(self, path: list[str], action: str) -> Table: ...
    def columns(self, table: Table) -> Columns: ...
    def rows(self, table: Table, scn: str | None = None) -> str: ...


class Miner(Protocol):
    """The mining session of the client."""

    connection: sqlite3.Connection | None
    files: dict[str, LogFile]
    parameters: dict[str, Any] | None

    def need_root(self) -> None: ...
    def add_logfile(self, name: str, option: int = 3) -> None: ...
    def remove_logfile(self, name: str) -> None: ...
    def start(self, start: int = 0, end: int = 0, options: int = 0, file: str | None = None) -> None: ...
    def end(self) -> None: ...
    def contents(self) -> str: ...
    def is_read_by(self, compiled: Compiled) -> bool: ...
    def serves(self, sql: str) -> Outcome | None: ...


class Settings(Protocol):
    """The settings that the database was made with."""

    @property
    def autonomous(self) -> bool: ...


class Database(Protocol):
    """The database of the session."""

    name: str
    cdb: bool
    root: str
    containers: list[str]
    dbid: int
    engine: Engine
    flashback: Flashback
    destinations: int
    real_time_apply: bool
    closed_on_standby: set[int]
    partial_xids: bool
    binary_xml: bool
    dictionary_files: dict[str, int]
    unsupported: set[str]
    dropped_partitions: set[str]
    bench: Plan | None

    @property
    def settings(self) -> Settings: ...
    @property
    def home(self) -> str: ...

    def container_id(self, name: str) -> int: ...
    def is_schema(self, name: str) -> bool: ...
    def sessions(self) -> Sequence["Session"]: ...
    def left(self, session: "Session") -> None: ...
    def standby_scn(self) -> int: ...
    def switch_log(self, thread: int = 1) -> int: ...
    def build_dictionary(self) -> None: ...


class Session(Protocol):
    """The session itself."""

    engine: Engine
    user: User
    container: str
    thread: int
    number: int
    standby: bool
    schema: str
    privileges: Privileges
    nls: Nls
    check: Callable[[], None]
    current: Transaction | None
    fixed_scn: int | None
    serializable: bool
    private: dict[str, Table]
    client_id: str | None
    logged_on: datetime.datetime

    @property
    def database(self) -> Database: ...
    @property
    def names(self) -> Names: ...
    @property
    def miner(self) -> Miner: ...

    def run(self, sql: str, rows: list[list[Any]], *, only_describe: bool = False) -> Outcome: ...
    def statement(self, sql: str) -> Statement: ...
    def compile(self, statement: Statement) -> Queries: ...
    def need_writable(self) -> None: ...

    def begin(self) -> Transaction: ...
    def transaction(self) -> Transaction: ...
    def commit(self, *, wait: bool = False) -> None: ...

    def borrow_connection(self) -> sqlite3.Connection: ...
    def stream(self, sql: str, binds: Sequence[Any], connection: sqlite3.Connection | None = None) -> Iterator[Any]: ...
    def evaluate(self, sql: str, binds: Sequence[Any]) -> list[Any]: ...
    def value_of(self, expression: str) -> Any: ...
    def keep(self, value: Any, column: Column, table: Table) -> Any: ...
    def next_identity(self, table: Table, column: Column) -> int: ...
