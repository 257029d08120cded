"""ALTER SESSION SET: formats of dates, the time zone, the container, the schema."""

from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import Token, Tokens
from dev.servers.oracle.values import moments

ONLY_BINARY = ("NLS_SORT", "NLS_COMP")
"""Texts are compared by their bytes here, and in no other way."""
WITHOUT_EFFECT = ("STATISTICS_LEVEL", "WORKAREA_SIZE_POLICY", "SORT_AREA_SIZE", "OPTIMIZER_MODE", "EVENTS")
"""Settings of a session that change nothing that can be seen here."""


def set_schema(session: Session, name: str) -> None:
    """The schema of names without an owner: ORA-01435 when there is none."""
    if not session.database.is_schema(name):
        raise OraError(1435)
    session.schema = name


def alter(session: Session, reader: Tokens) -> None:
    """ALTER SESSION SET one or several."""
    reader.expect("SET")
    while reader.more and not reader.skip_words(";"):
        name = reader.name()
        reader.expect("=")
        token = reader.next()
        if name == "ISOLATION_LEVEL" and token.word == "READ":
            reader.expect("COMMITTED")
        _set(session, name, token, reader.sql)


def _set(session: Session, name: str, token: Token, sql: str) -> None:
    if name in session.nls.settings:
        session.nls.settings[name] = token.text
    elif name == "TIME_ZONE":
        session.nls.zone = moments.region(token.text)
    elif name == "CONTAINER":
        set_container(session, token.text.upper())
    elif name == "ISOLATION_LEVEL" and token.word in ("READ", "SERIALIZABLE"):
        session.serializable = token.word == "SERIALIZABLE"
    elif name == "CURRENT_SCHEMA":
        set_schema(session, token.text)
    elif name in ONLY_BINARY and token.text == "BINARY":
        pass
    elif name not in WITHOUT_EFFECT:
        raise unknown(sql, name)


def set_container(session: Session, name: str) -> None:
    """ALTER SESSION SET CONTAINER: a common user with that privilege may."""
    if not session.database.cdb or name not in session.database.containers:
        raise OraError(65011, name)
    if not session.user.common or not session.privileges.has("SET CONTAINER"):
        raise OraError(1031)
    if name == session.container:
        return
    if session.current:
        raise OraError(900, "SET CONTAINER within a transaction (ORA-65023)")
    session.container = name
