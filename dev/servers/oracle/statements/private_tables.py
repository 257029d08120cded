"""Private temporary tables: only the session that has made one knows it, no dictionary has it, and the redo nothing of its rows."""

from dev.servers.oracle.engine.catalog import Table
from dev.servers.oracle.engine.storage import storage_ddl
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import Tokens, split
from dev.servers.oracle.statements import table_rows
from dev.servers.oracle.statements.definitions import Definition

PREFIX = "ORA$PTT_"
"""PRIVATE_TEMP_TABLE_PREFIX, as it is if no one has said otherwise."""


def create(session: Session, reader: Tokens) -> None:
    """CREATE PRIVATE TEMPORARY TABLE, for the whole session; rows that a query gives it are committed, as by any DDL."""
    path = reader.names()
    if not path[-1].startswith(PREFIX) or path[:-1] not in ([], [session.schema]):
        raise OraError(903)
    if session.user.name == "SYS":
        raise OraError(14451)
    session.privileges.need("CREATE TABLE")
    if path[-1] in session.private:
        raise OraError(955)
    number = session.engine.catalog.new_object()
    table = Table(number, session.schema, path[-1], session.container, [], number, private=True)
    rows = []
    with session.engine.writing():
        if reader.word() == "(":
            for entry in split(reader.group()):
                Definition(session, table, reader.sql).element(entry)
        if table.keys or any(column.default or column.generated for column in table.columns):
            raise OraError(14451)
        if not reader.skip_words("ON", "COMMIT", "PRESERVE", "DEFINITION"):
            raise unknown(reader.sql, "a private table without ON COMMIT PRESERVE DEFINITION")
        if reader.skip_words("AS"):
            rows = table_rows.select_rows(session, reader, table, reader.until(";"))
        reader.end()
        for statement in storage_ddl(table):
            session.engine.db.execute(statement)
    session.private[table.name] = table
    table_rows.fill(session, table, rows)


def drop(session: Session, table: Table) -> None:
    """Forget one, and its rows."""
    del session.private[table.name]
    with session.engine.writing():
        session.engine.db.execute(f"DROP TABLE {table.storage}")
