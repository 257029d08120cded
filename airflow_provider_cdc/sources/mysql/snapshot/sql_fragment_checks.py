"""Checks of SQL fragments that users write and that become part of a statement: conditions, SELECTs."""

from __future__ import annotations

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, raise_query_refused
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.tokenizer import LexerModes, tokenize_statement
from airflow_provider_cdc.sources.relational.sql_token_cursor import BAD


def checked_fragment(
    connection: Connection, config: MySqlConfig, sql: str, *, within: str, where: str, remedy: str
) -> str:
    """Check that a fragment is complete in itself; returns it without its final semicolon.

    A fragment that closes a parenthesis that it did not open would change the statement around it. It is tokenized as this server does,
    including executable comments of its version. Then the server prepares a statement that contains the fragment.

    :param within: the statement to prepare, with ``{}`` for the fragment
    :param where: the table and the fragment, for the error
    :raises QueryRejected: the fragment is not complete, or the server does not accept it
    """
    tokens, end = tokenize_statement(sql, 0, _modes(connection))
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
        wrong = "it is empty" if len(tokens) == 1 else "it contains more than one statement"
    if wrong:
        raise QueryRejected(f"The SQL is invalid: {wrong}.", where=where, safe="Nothing was read.", remedy=remedy)
    fragment = sql.rstrip().removesuffix(";") if sql[end - 1 : end] == ";" else sql
    with raise_query_refused(config, where, remedy), connection.cursor() as cursor:
        cursor.execute("PREPARE cdc_piece FROM %s", (f"{within.replace('{}', fragment)}\n",))
        cursor.execute("DEALLOCATE PREPARE cdc_piece")
    return fragment


def _modes(connection: Connection) -> LexerModes:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode, VERSION()")
        mode, version = map(str, cursor.fetchone() or ("", ""))
    server, mode = MySqlServer(version, "mariadb" in version.lower(), "", {}), mode.upper()
    return LexerModes("ANSI_QUOTES" in mode, "NO_BACKSLASH_ESCAPES" in mode, version=server.version_number)
