"""MERGE INTO t USING (query) s ON (condition) WHEN MATCHED THEN UPDATE SET … WHEN NOT MATCHED THEN INSERT (…) VALUES (…)."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.inference import Scope
from dev.servers.oracle.sql.lexer import Token, Tokens, split
from dev.servers.oracle.sql.statements import Statement
from dev.servers.oracle.statements.dml import Change, ChangedRows, insert_row, update_rows
from dev.servers.oracle.values import rowids


@dataclass
class Merge(Change):
    """A parsed MERGE."""

    source: list[Token] = field(default_factory=list)
    source_alias: str = ""
    condition: list[Token] = field(default_factory=list)
    matched: Change | None = None
    unmatched: Change | None = None

    def apply(self, session: Session, statement: Statement, binds: list[Any]) -> ChangedRows:
        queries, rows = session.compile(statement), session.names.rows(self.table)
        source = queries.query(self.source)
        scope = Scope({self.alias: session.names.columns(self.table), self.source_alias: source.columns})
        condition = queries.expressions.translate(self.condition, scope)
        ours, theirs = f"{rows} AS `{self.alias}`", f"({source.sql}) AS `{self.source_alias}`"
        done = ChangedRows()

        def evaluate_all(change: Change, first: str, rest: str) -> list[Any]:
            values = [queries.expressions.translate(tokens, scope) for tokens in change.values]
            return session.evaluate(f"SELECT {', '.join([first, *values])} FROM {rest}", binds)

        fresh: list[Any] = []
        if self.unmatched is not None:  # looked for before anything is changed
            without = f"{theirs} WHERE NOT EXISTS (SELECT 1 FROM {ours} WHERE {condition})"
            fresh = evaluate_all(self.unmatched, "0", without)
        if self.matched is not None:
            found = evaluate_all(self.matched, f"`{self.alias}`.__ROW", f"{theirs} JOIN {ours} ON {condition}")
            if len({row[0] for row in found}) < len(found):
                raise OraError(30926)
            for row in found:
                session.engine.check_row(session.transaction(), self.table, row[0], session.fixed_scn)
            done.count += len(update_rows(session, self.matched, found))
        for row in fresh:
            number, _ = insert_row(session, self.unmatched or self, row[1:])
            done.row_id = rowids.make(self.table.data_id, number)
            done.count += 1
        return done


def parse(session: Session, statement: Statement) -> Merge:
    """The structure of a MERGE, with its names resolved. Branches have no WHERE and no DELETE here."""
    reader = statement.reader()
    reader.expect("MERGE", "INTO")
    table = session.names.table(reader.names(), "UPDATE")
    alias = reader.name() if reader.word() != "USING" else table.name
    reader.expect("USING")
    merge = Merge("MERGE", table, alias, source=reader.group(), source_alias=reader.name())
    reader.expect("ON")
    merge.condition = reader.group()
    while reader.skip_words("WHEN"):
        if reader.skip_words("MATCHED", "THEN", "UPDATE", "SET"):
            merge.matched = _update(merge, reader.until("WHEN", "WHERE", "DELETE", ";"), reader)
        else:
            reader.expect("NOT", "MATCHED", "THEN", "INSERT")
            merge.unmatched = _insert(merge, reader)
    reader.end()
    return merge


def _update(merge: Merge, sets: list[Token], reader: Tokens) -> Change:
    change = Change("UPDATE", merge.table, merge.alias)
    joined = [token.text for before, token in pairwise(merge.condition) if before.text == "."]
    for part in split(sets):
        path = Tokens(part, reader.sql)
        column = merge.table.column(path.names()[-1])
        path.expect("=")
        if column.name in joined:
            raise OraError(38104, column.name)
        change.columns.append(column)
        change.values.append(list(path.tokens[path.at :]))
    return change


def _insert(merge: Merge, reader: Tokens) -> Change:
    change = Change("INSERT", merge.table, merge.alias)
    change.columns = [merge.table.column(Tokens(part, reader.sql).names()[-1]) for part in split(reader.group())]
    reader.expect("VALUES")
    change.values = split(reader.group())
    if len(change.values) != len(change.columns):
        raise unknown(reader.sql)
    return change
