"""A session: its settings, its transaction, and the way from a statement to its outcome."""

import contextlib
import datetime
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from dev.servers.oracle.engine.catalog import Column, Table, User
from dev.servers.oracle.engine.privileges import Privileges
from dev.servers.oracle.engine.transactions import Transaction
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.logminer.mining_session import Miner
from dev.servers.oracle.session_protocol import Database
from dev.servers.oracle.sql import functions
from dev.servers.oracle.sql.inference import Scope
from dev.servers.oracle.sql.lexer import Tokens
from dev.servers.oracle.sql.queries import Compiled, Queries
from dev.servers.oracle.sql.statements import Statement
from dev.servers.oracle.statements import alter_session, ddl, dml, merge, plsql, private_tables
from dev.servers.oracle.statements.names import Names
from dev.servers.oracle.values import datatypes, moments
from dev.servers.oracle.values.datatypes import DataType
from dev.servers.oracle.wire import codecs
from dev.servers.oracle.wire.statements import Outcome

READING = ("SELECT", "WITH", "(", "INSERT", "UPDATE", "DELETE", "MERGE", "LOCK")
"""With what a transaction begins that sees one state of the database."""
ROWS_AT_ONCE = 500
STEPS = 500_000
"""Of SQLite's machine, after which to look whether the client still wants the answer."""
UNUSED_BINDS = re.compile(r"The current statement uses (\d+)")
"""SQLite wants as many binds as a statement has; parts of a statement are evaluated with the binds of all of it."""


class Session:
    """The session of a connected client."""

    def __init__(
        self, database: Database, user: User, container: str, thread: int, number: int,
        check: Callable[[], None] = lambda: None, *, standby: bool = False,
    ) -> None:  # fmt: skip
        self.database = database
        self.engine = database.engine
        self.user = user
        self.container = container
        self.thread = thread
        self.number = number
        self.standby = standby
        self.schema = user.name
        self.privileges = Privileges(self.engine.catalog, user)
        self.nls = moments.Nls()
        self.check = check
        self.current: Transaction | None = None
        self.fixed_scn: int | None = None
        """What a transaction sees that is READ ONLY or SERIALIZABLE."""
        self.serializable = False
        self.private: dict[str, Table] = {}
        """Private temporary tables by name."""
        self.client_id: str | None = None
        self.logged_on = self.engine.now()
        self._failure: OraError | None = None
        self._ended: Exception | None = None
        self._free: list[sqlite3.Connection] = []
        self._connections: list[sqlite3.Connection] = []
        self._allowed: frozenset[str] = frozenset()
        self.miner = Miner(self)
        self.names = Names(self)

    # functions' context

    def now(self) -> datetime.datetime:
        return self.engine.now()

    def begin(self) -> Transaction:
        """A new transaction of this session."""
        container = self.database.container_id(self.container)
        return self.engine.begin(self.thread, self.user.name, container, self.client_id)

    def failed(self, error: OraError) -> None:
        self._failure = error

    def context(self, namespace: str, name: str) -> str | None:
        values = {
            "CON_NAME": self.container, "CON_ID": str(self.database.container_id(self.container)), "SESSION_USER": self.user.name,
            "CURRENT_SCHEMA": self.schema, "CURRENT_USER": self.user.name, "INSTANCE": str(self.thread), "SID": str(self.number),
            "DB_NAME": self.database.name, "DB_UNIQUE_NAME": self.database.name, "SERVICE_NAME": self.container,
            "SERVER_HOST": "localhost", "INSTANCE_NAME": f"{self.database.name}{self.thread}", "SESSIONID": str(self.number),
            "DATABASE_ROLE": "PHYSICAL STANDBY" if self.standby else "PRIMARY", "CDB_NAME": self.database.name if self.database.cdb else None,
        }  # fmt: skip
        if namespace != "USERENV" or name not in values:
            raise OraError(900, f"SYS_CONTEXT('{namespace}', '{name}')")
        return values[name]

    def scn_to_timestamp(self, scn: int) -> str:
        return self.database.flashback.timestamp(scn)

    def timestamp_to_scn(self, text: str) -> int:
        return self.database.flashback.scn(text)

    def read_scn(self) -> int:
        return self.engine.read_scn()

    def get_ddl(self, kind: str, name: str, owner: str | None) -> str:
        return ddl.get_ddl(self, kind, name, owner or self.schema)

    def next_value(self, owner: str, name: str) -> int:
        with self.engine.writing():
            sequence = self.engine.catalog.sequences[self.container, owner, name]
            sequence.value += sequence.increment
            self.engine.catalog.save(sequence)
            return sequence.value

    # storage connections

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that no one in this session reads from now."""
        taken = self.borrow_connection()
        try:
            yield taken
        finally:
            self._free.append(taken)

    def borrow_connection(self) -> sqlite3.Connection:
        if self._free:
            return self._free.pop()
        fresh = self.engine.connect()
        self._allowed = functions.register(fresh, self)
        fresh.create_function("ORA_AS_OF", 2, self._guard(self._as_of), deterministic=True)
        fresh.create_function("ORA_AS_OF_TIME", 2, self._guard(self._as_of_time), deterministic=True)
        fresh.set_progress_handler(self._is_ended, STEPS)
        self._connections.append(fresh)
        return fresh

    def _is_ended(self) -> bool:
        """Check whether the client has sent a break, or is gone."""
        try:
            self.check()
        except Exception as error:
            self._ended = error
        return self._ended is not None

    def _guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except OraError as error:
                self._failure = error
                raise

        return call

    def _as_of(self, scn: Any, table_id: int) -> int:
        return self.database.flashback.check(datatypes.number(scn), table_id)

    def _as_of_time(self, text: str, table_id: int) -> int:
        return self._as_of(self.database.flashback.scn(text), table_id)

    # statements

    def run(self, sql: str, rows: list[list[Any]], *, only_describe: bool = False) -> Outcome:
        """Run a statement once for each row of binds."""
        statement = Statement(sql)
        rows = [[_normalize_value(value) for value in row] for row in rows]
        word = statement.word
        if self.serializable and self.fixed_scn is None and word in READING:
            self.fixed_scn = self.engine.snapshot_scn()
        if word in ("SELECT", "WITH") or (statement.tokens and statement.tokens[0].text == "("):
            return self._query(statement, rows[0], only_describe=only_describe)
        if word in ("INSERT", "UPDATE", "DELETE", "MERGE"):
            return self._change(statement, rows)
        if word in ("BEGIN", "DECLARE", "CALL"):
            outs: dict[int, Any] = {}
            for row in rows:
                outs = plsql.execute(self, statement, row)
            return Outcome(outs=outs)
        self.run_simple(statement)
        return Outcome()

    def run_simple(self, statement: Statement) -> None:
        """A statement without binds and rows: transactions, sessions, DDL."""
        reader = statement.reader()
        if reader.skip_words("COMMIT"):
            reader.skip_words("WORK")
            wait = reader.skip_words("WRITE", "IMMEDIATE", "WAIT")
            reader.end()
            self.commit(wait=wait)
        elif reader.skip_words("ROLLBACK"):
            reader.skip_words("WORK")
            self._rollback(reader)
        elif reader.skip_words("SAVEPOINT"):
            self.savepoint(reader.name())
            reader.end()
        elif reader.skip_words("SET", "TRANSACTION"):
            self._set_transaction(reader)
        elif reader.skip_words("SET", "CONSTRAINTS") or reader.skip_words("SET", "CONSTRAINT"):
            reader.until(";")  # foreign keys are not enforced at all, and others cannot be deferred here
        elif reader.skip_words("ALTER", "SESSION"):
            alter_session.alter(self, reader)
        elif statement.word == "LOCK":
            self.need_writable()
            dml.lock_table(self, statement)
        else:
            ddl.execute(self, statement)

    def need_writable(self) -> None:
        if self.standby:
            raise OraError(16000)

    # transactions

    @property
    def in_transaction(self) -> bool:
        return self.current is not None

    def statement(self, sql: str) -> Statement:
        """A statement out of its text."""
        return Statement(sql)

    def transaction(self) -> Transaction:
        self.need_writable()
        if self.current is None:
            self.current = self.begin()
        return self.current

    def commit(self, *, wait: bool = False) -> None:
        """:param wait: for the log writer, whatever ``COMMIT_WAIT`` says"""
        self.fixed_scn = None
        transaction, self.current = self.current, None
        if transaction:
            self.engine.commit(transaction)
            if wait:
                self.engine.redo.flush(transaction.thread)

    def rollback(self) -> None:
        self.fixed_scn = None
        transaction, self.current = self.current, None
        if transaction:
            self.engine.rollback(transaction)

    def savepoint(self, name: str) -> None:
        transaction = self.transaction()
        transaction.savepoints[name] = transaction.sealed = len(transaction.undo)

    def _rollback(self, reader: Tokens) -> None:
        if not reader.skip_words("TO"):
            reader.end()
            self.rollback()
            return
        reader.skip_words("SAVEPOINT")
        name = reader.name()
        reader.end()
        if self.current is None or name not in self.current.savepoints:
            raise OraError(1086, name)
        mark = self.current.savepoints[name]
        self.engine.rollback_to(self.current, mark)
        self.current.savepoints = {key: at for key, at in self.current.savepoints.items() if at <= mark}

    def _set_transaction(self, reader: Tokens) -> None:
        words = " ".join(token.text for token in reader.until(";"))
        if words == "READ ONLY":
            self.fixed_scn = self.engine.snapshot_scn()
        elif words not in ("READ WRITE", "ISOLATION LEVEL READ COMMITTED") and not words.startswith("NAME "):
            raise unknown(reader.sql)

    def close(self) -> None:
        """Leave: what is not committed is taken back."""
        try:
            self.rollback()
            for table in list(self.private.values()):
                private_tables.drop(self, table)
        finally:
            self.database.left(self)
            for connection in self._connections:
                connection.close()

    def set_schema(self, name: str) -> None:
        alter_session.set_schema(self, name)

    # queries

    def compile(self, statement: Statement) -> Queries:
        with self.connection():
            pass
        return Queries(statement.sql, statement.tokens, self._allowed, self.names)

    def _query(self, statement: Statement, binds: list[Any], *, only_describe: bool) -> Outcome:
        if len(binds) < statement.bind_count and not only_describe:
            raise OraError(1008)
        if encoded := self.miner.serves(statement.sql):
            return encoded
        compiled = self.compile(statement).query(
            statement.tokens[:-1] if statement.tokens[-1].text == ";" else statement.tokens
        )
        if only_describe:
            return Outcome([_column(name, kind, None) for name, kind in compiled.columns], iter(()))
        if compiled.for_update is not None:
            rows: Iterator[Any] = iter(dml.lock_rows(self, compiled, binds))
        else:
            rows = self._stream(compiled, binds)
        first = next(rows, None)
        columns = [
            _column(name, kind, first[index] if first else None) for index, (name, kind) in enumerate(compiled.columns)
        ]
        return Outcome(columns, _chain_first(first, rows))

    def _stream(self, compiled: Compiled, binds: list[Any]) -> Iterator[Any]:
        return self.stream(compiled.sql, binds, self.miner.connection if self.miner.is_read_by(compiled) else None)

    def stream(self, sql: str, binds: Sequence[Any], connection: sqlite3.Connection | None = None) -> Iterator[Any]:
        """The rows of a query in SQLite's words, some at a time."""
        taken = connection or self.borrow_connection()
        try:
            cursor = self._run(taken, sql, binds)
            while rows := self._fetch(cursor):
                yield from rows
            cursor.close()
        finally:
            if connection is None:
                self._free.append(taken)

    def _fetch(self, cursor: sqlite3.Cursor) -> list[Any]:
        try:
            return cursor.fetchmany(ROWS_AT_ONCE)
        except sqlite3.Error as error:
            raise self._translated(error) from None

    def _run(self, connection: sqlite3.Connection, sql: str, binds: Sequence[Any]) -> sqlite3.Cursor:
        self._failure = None
        try:
            return connection.execute(sql, binds)
        except sqlite3.ProgrammingError as error:
            used = UNUSED_BINDS.search(str(error))
            if not used or int(used[1]) >= len(binds):
                raise OraError(900, str(error)) from None
            return self._run(connection, sql, binds[: int(used[1])])
        except sqlite3.Error as error:
            raise self._translated(error) from None

    def _translated(self, error: sqlite3.Error) -> Exception:
        ended, self._ended = self._ended, None
        if ended is not None:
            return ended
        failure, self._failure = self._failure, None
        return failure or OraError(900, str(error))

    def evaluate(self, sql: str, binds: Sequence[Any]) -> list[Any]:
        """All rows of a query in SQLite's words."""
        with self.connection() as connection:
            cursor = self._run(connection, sql, binds)
            rows: list[Any] = []
            while more := self._fetch(cursor):
                rows += more
            return rows

    def value_of(self, expression: str) -> Any:
        """The value of an expression in Oracle's words: a default."""
        statement = Statement(expression)
        text = self.compile(statement).expressions.translate(statement.tokens, Scope())
        return self.evaluate(f"SELECT {text}", [])[0][0]

    # changes

    def _change(self, statement: Statement, rows: list[list[Any]]) -> Outcome:
        self.need_writable()
        if len(rows[0]) < statement.bind_count:
            raise OraError(1008)
        outcome = Outcome()
        returned: list[list[tuple[Any, ...]]] = []
        change = (merge if statement.word == "MERGE" else dml).parse(self, statement)
        for done in dml.execute(self, statement, change, rows):
            outcome.count += done.count
            outcome.row_id = done.row_id or outcome.row_id
            returned.append(done.returned)
        if change.returning:
            first = len(rows[0]) - len(change.returning)
            for index in range(len(change.returning)):
                outcome.outs[first + index] = [[row[index] for row in turn] for turn in returned]
        return outcome

    def keep(self, value: Any, column: Column, table: Table) -> Any:
        """A value as this column keeps it."""
        name = datatypes.qualify_names(table.owner, table.name, column.name)
        return datatypes.store(value, column.type, name, self.nls)

    def next_identity(self, table: Table, column: Column) -> int:
        return self.next_value(table.owner, f"ISEQ$$_{table.id}")


def _normalize_value(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "nan"  # as it is kept; SQLite would make NULL of it
    return datatypes.number(value) if isinstance(value, Decimal | int) else value


def _column(name: str, kind: DataType | None, sample: Any) -> codecs.Column:
    if kind is None:
        guesses = {int: datatypes.NUMBER, float: datatypes.NUMBER, bytes: datatypes.RAW}
        kind = guesses.get(type(sample), datatypes.VARCHAR)
    return codecs.Column(name, kind)


def _chain_first(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
    yield from rest
