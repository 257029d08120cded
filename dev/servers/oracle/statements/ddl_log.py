"""The common part of each DDL: it does not wait for transactions, and is in the redo."""

from dev.servers.oracle.engine.catalog import Table
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import Tokens

USER_DDL = "USER DDL (PlSql=0 RecDep=0)"
INTERNAL_DDL = "INTERNAL DDL (PlSql=0 RecDep=1)"


def lock(session: Session, table: Table) -> None:
    """DDL does not wait: ORA-00054 while a transaction has changed the table."""
    for transaction in session.engine.transactions.values():
        if transaction is not session.current and table.id in transaction.table_locks:
            raise OraError(54)


def log(
    session: Session,
    reader: Tokens,
    table: Table | None,
    owner: str,
    name: str,
    *,
    text: str | None = None,
    info: str = USER_DDL,
) -> None:
    """The redo of a DDL: a separate transaction with the statement in it."""
    sql = (text or reader.sql.rstrip().rstrip(";").rstrip()) + ";"
    content = {
        "SQL_REDO": sql,
        "INFO": info,
        "SEG_OWNER": owner,
        "SEG_NAME": name,
        "TABLE_NAME": name,
        "USERNAME": session.user.name,
        "STATUS": 0,
    }
    transaction = session.begin()
    with session.engine.writing():
        session.engine.record(transaction, 5, table=table, body=content)
        session.engine.commit(transaction)
