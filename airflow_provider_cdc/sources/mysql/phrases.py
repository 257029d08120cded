"""Pieces of SQL that people write, and that become part of a statement."""

from __future__ import annotations

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import QueryRefused
from airflow_provider_cdc.sources.mysql.connect import scalar
from airflow_provider_cdc.sources.mysql.ddl.tokens import Modes, tokenize
from airflow_provider_cdc.sources.tokens import BAD


def closed(connection: Connection, sql: str, where: str, remedy: str) -> str:
    """The piece without a semicolon at its end, if it stands by itself: one that closes a parenthesis which it has not opened
    would change the meaning of what is around it.

    :raises QueryRefused: it does not
    """
    mode = str(scalar(connection, "SELECT @@SESSION.sql_mode")).upper()
    modes = Modes(ansi_quotes="ANSI_QUOTES" in mode, no_backslash_escapes="NO_BACKSLASH_ESCAPES" in mode)
    tokens, end = tokenize(sql, 0, modes)
    depth, wrong = 0, ""
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth < 0:
            wrong = "it closes a parenthesis that it does not open"
            break
        if token.kind == BAD:
            wrong = token.value
    if not wrong and depth:
        wrong = "it does not close a parenthesis that it opens"
    if not wrong and (len(tokens) == 1 or sql[end:].strip()):
        wrong = "it is empty" if len(tokens) == 1 else "it is more than one statement"
    if wrong:
        raise QueryRefused(f"The SQL cannot be used: {wrong}.", where=where, safe="Nothing was read.", remedy=remedy)
    return sql.rstrip().removesuffix(";") if sql[end - 1 : end] == ";" else sql
