"""INSERT, UPDATE, DELETE, LOCK TABLE and SELECT ... FOR UPDATE."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.servers.oracle.engine import lobs, transactions
from dev.servers.oracle.engine.catalog import Column, Table
from dev.servers.oracle.engine.transactions import LockBlocked
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.expressions import Expressions
from dev.servers.oracle.sql.inference import ROW_ID, Scope
from dev.servers.oracle.sql.lexer import BIND, NUMBER, STRING, Token, Tokens, split
from dev.servers.oracle.sql.queries import Compiled
from dev.servers.oracle.sql.statements import Statement
from dev.servers.oracle.statements import names
from dev.servers.oracle.values import datatypes, rowids
from dev.servers.oracle.values.datatypes import qualify_names

MODES = {
    "ROW SHARE": transactions.ROW_SHARE, "SHARE UPDATE": transactions.ROW_SHARE, "ROW EXCLUSIVE": transactions.ROW_EXCLUSIVE,
    "SHARE": transactions.SHARE, "SHARE ROW EXCLUSIVE": transactions.SHARE_ROW_EXCLUSIVE, "EXCLUSIVE": transactions.EXCLUSIVE,
}  # fmt: skip


@dataclass
class Change:
    """A parsed statement that changes rows."""

    kind: str
    table: Table
    alias: str
    columns: list[Column] = field(default_factory=list)
    values: list[list[Token]] = field(default_factory=list)
    query: list[Token] | None = None
    where: list[Token] | None = None
    returning: list[list[Token]] = field(default_factory=list)

    def apply(self, session: Session, statement: Statement, binds: list[Any]) -> "ChangedRows":
        """Run it with one row of binds."""
        return (_insert if self.kind == "INSERT" else _modify)(session, statement, self, binds)


@dataclass
class ChangedRows:
    """The effect of an execution of a statement."""

    count: int = 0
    row_id: bytes | None = None
    returned: list[tuple[Any, ...]] = field(default_factory=list)


def parse(session: Session, statement: Statement) -> Change:
    """The structure of a statement, with its names resolved."""
    reader = statement.reader()
    word = reader.next().text
    if word == "INSERT":
        return _parse_insert(session, reader)
    if word == "DELETE":
        reader.skip_words("FROM")
    table = session.names.table(reader.names(), word)
    alias = (
        reader.name()
        if reader.more and reader.word() not in ("SET", "WHERE", "RETURNING", ";", "RETURN")
        else table.name
    )
    change = Change(word, table, alias)
    if word == "UPDATE":
        reader.expect("SET")
        for part in split(reader.until("WHERE", "RETURNING", "RETURN", ";")):
            path = Tokens(part, reader.sql)
            name = path.names()[-1]
            path.expect("=")
            change.columns.append(table.column(name))
            change.values.append(list(path.tokens[path.at :]))
    if reader.skip_words("WHERE"):
        change.where = reader.until("RETURNING", "RETURN", ";")
    return _parse_returning(change, reader)


def _parse_insert(session: Session, reader: Tokens) -> Change:
    reader.expect("INTO")
    table = session.names.table(reader.names(), "INSERT")
    change = Change("INSERT", table, table.name)
    if reader.word() not in ("(", "VALUES", "SELECT", "WITH"):
        change.alias = reader.name()
    names = None
    if reader.word() == "(" and reader.word(1) not in ("SELECT", "WITH"):
        names = [Tokens(part, reader.sql).names()[-1] for part in split(reader.group())]
    change.columns = [table.column(name) for name in names] if names else table.live
    if reader.skip_words("VALUES"):
        change.values = split(reader.group())
        if len(change.values) != len(change.columns):
            raise OraError(913 if len(change.values) > len(change.columns) else 947)
    elif reader.word() in ("SELECT", "WITH"):
        change.query = reader.until("RETURNING", ";")
    else:
        raise unknown(reader.sql)
    return _parse_returning(change, reader)


def _parse_returning(change: Change, reader: Tokens) -> Change:
    if reader.skip_words("RETURNING") or reader.skip_words("RETURN"):
        change.returning = split(reader.until("INTO"))
        reader.expect("INTO")
        reader.until(";")
    reader.end()
    return change


def execute(session: Session, statement: Statement, change: Change, rows: list[list[Any]]) -> list[ChangedRows]:
    """Run it once per row of binds: wait for what other transactions hold, then change all rows, or none if one fails."""
    transaction = session.transaction()
    results: list[ChangedRows] = []
    together = len(rows) if change.kind == "INSERT" and change.query is None else 1
    try:
        while len(results) < len(rows):
            try:
                with session.engine.writing():
                    session.engine.lock_table(transaction, change.table, transactions.ROW_EXCLUSIVE)
                    for binds in rows[len(results) :][:together]:
                        results.append(_attempt(session, statement, change, binds))
            except LockBlocked as blocked:
                session.engine.wait(transaction, blocked.holder, session.check)
    finally:
        transaction.waits_for = None
    return results


def _attempt(session: Session, statement: Statement, change: Change, binds: list[Any]) -> ChangedRows:
    transaction = session.transaction()
    mark = transaction.statement = len(transaction.undo)
    try:
        done = change.apply(session, statement, binds)
        session.engine.check_keys(transaction)
    except (OraError, LockBlocked):
        transaction.unchecked.clear()
        session.engine.rollback_to(transaction, mark)
        raise
    session.engine.compact(transaction)
    return done


# INSERT


def _insert(session: Session, statement: Statement, change: Change, binds: list[Any]) -> ChangedRows:
    done = ChangedRows()
    for given in _inserted_rows(session, statement, change, binds):
        row, values = insert_row(session, change, given)
        done.count += 1
        done.row_id = rowids.make(change.table.data_id, row)
        if change.returning:
            done.returned.append(_returning_values(session, statement, change, row, values, binds))
    return done


def insert_row(session: Session, change: Change, given: Sequence[Any]) -> tuple[int, dict[int, Any]]:
    """A new row of the values for the columns of a change: its number and all its values."""
    transaction = session.transaction()
    values = _row(change, given, session)
    session.engine.wait_for_keys(transaction, change.table, values)
    lobs.check_nulls(change.table, values, 1400)
    row = session.engine.insert(transaction, change.table, values)
    lobs.record_insert(session.engine, transaction, change.table, row, values)
    return row, values


def _inserted_rows(session: Session, statement: Statement, change: Change, binds: list[Any]) -> Iterable[Sequence[Any]]:
    if change.query is not None:
        compiled = session.compile(statement).query(change.query)
        if len(compiled.columns) != len(change.columns):
            raise OraError(913 if len(compiled.columns) > len(change.columns) else 947)
        return session.stream(compiled.sql, binds)
    simple = [_simple(tokens, statement, binds) for tokens in change.values]
    known = [value[0] for value in simple if value is not None]
    if len(known) == len(simple):
        return [known]
    expressions = session.compile(statement).expressions
    texts = ", ".join(_value(expressions, tokens, Scope()) for tokens in change.values)
    computed = session.evaluate(f"SELECT {texts}", binds)[0]
    return [
        [
            _default(change.columns[index], session) if _is_default(tokens) else computed[index]
            for index, tokens in enumerate(change.values)
        ]
    ]


def _is_default(tokens: list[Token]) -> bool:
    return len(tokens) == 1 and tokens[0].word == "DEFAULT"


def _value(expressions: Expressions, tokens: list[Token], scope: Scope) -> str:
    return "NULL" if _is_default(tokens) else expressions.translate(tokens, scope)


def _simple(tokens: list[Token], statement: Statement, binds: list[Any]) -> tuple[Any] | None:
    """The value of a bind or a literal without asking SQLite; None for anything else."""
    if len(tokens) != 1:
        return None
    token = tokens[0]
    if token.kind == BIND:
        return (binds[statement.bind_number(token)],)
    if token.kind == STRING:
        return (token.text or None,)
    if token.kind == NUMBER:
        return (datatypes.number(token.text.rstrip("FD")),)
    return (None,) if token.word == "NULL" else None


def _row(change: Change, values: Sequence[Any], session: Session) -> dict[int, Any]:
    given = {column.id: value for column, value in zip(change.columns, values, strict=True)}
    row = {}
    for column in change.table.live:
        value = given.get(column.id)
        if column.generated == "ALWAYS" and column.id in given:
            raise OraError(32795)
        if column.generated and (column.id not in given or (value is None and "NULL" in column.generated)):
            value = session.next_identity(change.table, column)
        elif column.id not in given and column.default is not None:
            value = _default(column, session)
        row[column.id] = session.keep(value, column, change.table)
    return row


def _default(column: Column, session: Session) -> Any:
    return None if column.default is None else session.value_of(column.default)


# UPDATE and DELETE


def _modify(session: Session, statement: Statement, change: Change, binds: list[Any]) -> ChangedRows:
    table, transaction = change.table, session.transaction()
    compiler = session.compile(statement)
    scope = Scope({change.alias: session.names.columns(table)})
    texts = [_value(compiler.expressions, tokens, scope) for tokens in change.values]
    for column, tokens in zip(change.columns, change.values, strict=change.kind != "DELETE"):
        _refuse_other_type(column, compiler.expressions.infer(tokens, scope))
    where = f" WHERE {compiler.expressions.translate(change.where, scope)}" if change.where else ""
    chosen = ", ".join([f"`{change.alias}`.__ROW", *texts])
    found = session.evaluate(f"SELECT {chosen} FROM {session.names.rows(table)} AS `{change.alias}`{where}", binds)
    for row in found:
        session.engine.check_row(transaction, table, row[0], session.fixed_scn)
    done = ChangedRows(len(found))
    if change.kind == "DELETE":
        for row in found:
            if change.returning:
                before = session.engine.newest(table, row[0])[1]
                done.returned.append(_returning_values(session, statement, change, row[0], before, binds))
            session.engine.delete(transaction, table, row[0])
        return done
    for number, values in update_rows(session, change, found):
        done.row_id = rowids.make(table.data_id, number)
        if change.returning:
            done.returned.append(_returning_values(session, statement, change, number, values, binds))
    return done


def _refuse_other_type(column: Column, given: datatypes.DataType | None) -> None:
    """:raises OraError: a date for a number, or the other way round"""
    numbers = {"NUMBER", "FLOAT", *datatypes.FLOAT_KINDS}
    kinds = [kind.kind for kind in (column.type, given) if kind is not None]
    if len(kinds) == 2 and any(a in numbers and b in datatypes.DATE_KINDS for a, b in (kinds, reversed(kinds))):
        raise OraError(932, *kinds)


def update_rows(
    session: Session, change: Change, rows: Sequence[Sequence[Any]]
) -> Iterable[tuple[int, dict[int, Any]]]:
    """Change rows: each its number and the new values of the columns of a change; then its number and all its values."""
    table, transaction = change.table, session.transaction()
    plan = [(row[0], _updated_values(session, change, row)) for row in rows]
    changed = [column.id for column in change.columns]
    for number, values in plan:
        session.engine.wait_for_keys(transaction, table, values, number)
    for number, values in plan:
        lobs.check_nulls(table, values, 1407)
        before = session.engine.newest(table, number)[1]
        lobs.record_update(session.engine, transaction, table, number, before, values, changed)
    return plan


def _updated_values(session: Session, change: Change, row: Sequence[Any]) -> dict[int, Any]:
    values = dict(session.engine.newest(change.table, row[0])[1])
    for column, value, tokens in zip(change.columns, row[1:], change.values, strict=True):
        given = _default(column, session) if _is_default(tokens) else value
        values[column.id] = session.keep(given, column, change.table)
    return values


def _returning_values(
    session: Session, statement: Statement, change: Change, row: int, values: dict[int, Any], binds: list[Any]
) -> tuple[Any, ...]:
    """The expressions behind RETURNING, computed from the row."""
    table = change.table
    parts = ", ".join(f"{names.literal(values[column.id])} AS `{column.name}`" for column in table.live)
    scope = Scope({change.alias: session.names.columns(table)})
    expressions = session.compile(statement).expressions
    texts = ", ".join(expressions.translate(tokens, scope) for tokens in change.returning)
    row_id = names.literal(rowids.make(table.data_id, row))
    source = f"(SELECT {parts}, {row_id} AS {ROW_ID}) AS `{change.alias}`"
    return tuple(session.evaluate(f"SELECT {texts} FROM {source}", binds)[0])


# locks


def lock_table(session: Session, statement: Statement) -> None:
    """LOCK TABLE t [, u] IN mode MODE [NOWAIT | WAIT n]."""
    reader = statement.reader()
    reader.expect("LOCK", "TABLE")
    tables = [
        session.names.table([token.text for token in part if token.is_identifier], "LOCK")
        for part in split(reader.until("IN"))
    ]
    reader.expect("IN")
    mode = MODES.get(" ".join(token.text for token in reader.until("MODE")))
    reader.expect("MODE")
    if mode is None:
        raise unknown(statement.sql)
    wait = "0" if reader.skip_words("NOWAIT") else reader.next().text if reader.skip_words("WAIT") else ""
    reader.end()
    transaction = session.transaction()

    def attempt() -> None:
        for table in tables:
            session.engine.lock_table(transaction, table, mode)

    with_deadline(session, wait, attempt)


def with_deadline(session: Session, wait: str, attempt: Any) -> Any:
    """Try until it works; ORA-00054 at once for NOWAIT, ORA-30006 when the seconds of WAIT are over."""
    transaction = session.transaction()
    deadline = datetime.datetime.now() + datetime.timedelta(seconds=int(wait)) if wait.isdigit() else None
    try:
        while True:
            try:
                with session.engine.writing():
                    return attempt()
            except LockBlocked as blocked:
                if deadline and datetime.datetime.now() >= deadline:
                    raise OraError(54 if wait == "0" else 30006) from None
                session.engine.wait(transaction, blocked.holder, session.check)
    finally:
        transaction.waits_for = None


def lock_rows(session: Session, compiled: Compiled, binds: list[Any]) -> list[tuple[Any, ...]]:
    """SELECT ... FOR UPDATE: the rows, locked."""
    if len(compiled.sources) != 1 or compiled.sources[0].table is None:
        raise OraError(900, "FOR UPDATE wants one table")
    table = session.engine.catalog.by_id(int(compiled.sources[0].table))
    if table is None:
        raise OraError(942)
    skip = compiled.for_update == "SKIP"
    text = compiled.sql.replace("SELECT ", f"SELECT `{_alias(compiled)}`.__ROW, ", 1)

    def attempt() -> list[tuple[Any, ...]]:
        transaction = session.transaction()
        session.engine.lock_table(transaction, table, transactions.ROW_EXCLUSIVE)
        kept = []
        for row in session.evaluate(text, binds):
            try:
                session.engine.check_row(transaction, table, row[0], session.fixed_scn)
            except LockBlocked:
                if skip:
                    continue
                raise
            kept.append(row)
        for row in kept:
            session.engine.lock_row(transaction, table, row[0])
        return [row[1:] for row in kept]

    return list(with_deadline(session, compiled.for_update or "", attempt))


def _alias(compiled: Compiled) -> str:
    head, _, tail = compiled.sql.rpartition(f"{compiled.sources[0].sql} AS `")
    if not head:
        raise OraError(900, f"FOR UPDATE of {qualify_names(*compiled.names)}")
    return tail.split("`", 1)[0]
