"""SELECT statements that replace the snapshot's own for some tables (``snapshot.select.statement.overrides``), as of its SCN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.sql_tokenizer import tokenize
from airflow_provider_cdc.sources.relational.sql_token_cursor import BAD, QUOTED, WORD, SqlToken

_OTHER_CLAUSES: Final = frozenset(
    (
        "SELECT",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "CONNECT",
        "START",
        "MODEL",
        "UNION",
        "MINUS",
        "INTERSECT",
        "EXCEPT",
        "FETCH",
        "OFFSET",
    )
)
_PARTITIONS: Final = {"PARTITION", "SUBPARTITION"}


def override_of(table: TableId, overrides: Mapping[str, str]) -> str | None:
    """Return the statement for a table. Names are case-insensitive, with or without the pluggable database."""
    names = {str(table).lower(), table.full_name.lower()}
    return next((statement for name, statement in overrides.items() if name.lower() in names), None)


def as_of(statement: str, table: TableId, scn: int, user: str) -> str:
    """Return the statement with ``AS OF SCN`` after each mention of the table.

    :param user: schema of names without a schema
    :raises ConfigError: the statement does not select from the table

    >>> as_of("SELECT * FROM shop.orders o WHERE o.paid = 1;", TableId(namespace="SHOP", name="ORDERS"), 7, "CDC")
    'SELECT * FROM shop.orders AS OF SCN 7 o WHERE o.paid = 1'
    """
    tokens = tokenize(statement)
    last = tokens[-1]
    mentions = [] if last.kind == BAD else _mentions([*tokens, last, last], table, user)
    if not mentions:
        why = last.value if last.kind == BAD else f"it does not select from {table}"
        raise ConfigError(
            f"snapshot.select.statement.overrides.{table}: {why}.",
            where=statement,
            safe="Nothing was read; the offset is untouched.",
            remedy=f"write a SELECT of all captured columns FROM {table}",
        )
    statement = statement[: last.start]
    for end, has_its_own in reversed(mentions):
        if not has_its_own:
            statement = f"{statement[:end]} AS OF SCN {scn}{statement[end:]}"
    return statement.rstrip()


def _mentions(tokens: list[SqlToken], table: TableId, user: str) -> list[tuple[int, bool]]:
    """Yield the end of each mention of the table in a FROM clause.

    Each is an offset, with whether a flashback clause follows it.
    """
    mentions: list[tuple[int, bool]] = []
    inside = [False]  # per depth of parentheses: inside a FROM clause
    for i, token in enumerate(tokens):
        if token.key == "(":
            inside.append(inside[-1])
        elif token.key == ")" and len(inside) > 1:
            inside.pop()
        elif token.key in ("FROM", "JOIN"):
            inside[-1] = True
        elif token.key in _OTHER_CLAUSES:
            inside[-1] = False
        elif inside[-1] and token.kind in (WORD, QUOTED) and token.value == table.name:
            end = _mentioned(tokens, i, table, user)
            if end is not None:
                mentions.append((tokens[end].end, (tokens[end + 1].key, tokens[end + 2].key) == ("AS", "OF")))
    return mentions


def _mentioned(tokens: list[SqlToken], at: int, table: TableId, user: str) -> int | None:
    """Index of the last token of a mention of the table, partition included; ``None`` if the name means something else."""
    qualified = tokens[at - 1].key == "."
    first = at - 2 if qualified else at
    owner = tokens[first].value if qualified else user.upper()
    if owner != table.namespace or tokens[first - 1].key not in ("FROM", "JOIN", ",", "(") or tokens[at + 1].key == ".":
        return None
    if tokens[at + 1].key in _PARTITIONS:
        while tokens[at + 1].key not in (")", ""):
            at += 1
        at += 1
    return at
