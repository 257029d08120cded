"""Statements of clients by kind: for the engine, answered by the server itself, or refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dev.servers.db2.errors import Db2Error, undefined_object_error, unsupported_statement_error
from dev.servers.db2.statements.dialect import CATALOGS, NAME, MaskedStatement, translate_statement

Table = tuple[str, str]
QUALIFIED = rf"(?:({NAME})\s*\.\s*)?({NAME})"
DONE = "DB2LOG.DONE"
NOTHING = f"CALL {DONE}()"
"""A statement that does nothing, in place of those that the server has done itself."""


@dataclass
class Plan:
    """The work that a statement causes."""

    sql: str
    """What the engine is given."""
    touched: list[Table] = field(default_factory=list)
    """Tables whose structure it changes, once it is committed."""
    captured: dict[Table, bool] = field(default_factory=dict)
    """Tables whose changes are to be logged, or no longer, once it is committed."""
    declared: dict[Table, str] = field(default_factory=dict)
    """Tables with the list of their columns, as it was written."""
    lock_timeout: float | Literal["same"] | None = "same"
    """How long the session waits for locks from here on; None: for ever."""
    structure: bool = False
    renamed_column: tuple[str, str] | None = None
    schema: str | None = None
    """The session's schema from here on."""


PROCEDURES = ("ASNCDC.", "SYSPROC.ADMIN_CMD")
"""How the names of procedures begin that are the server's own."""


class Server(Protocol):
    """The part of the server that statements use."""

    @property
    def lsn_bytes(self) -> int: ...
    def services(self, command: str) -> str: ...
    def add_table(self, schema: str, table: str, *, creator: str) -> None: ...
    def remove_table(self, schema: str, table: str) -> None: ...
    def distinct_types(self) -> dict[Table, str]: ...
    def create_type(self, schema: str, name: str, words: str) -> None: ...
    def drop_type(self, schema: str, name: str) -> None: ...
    def comment(self, schema: str, table: str, comments: dict[str, str]) -> None: ...
    def suspend(self, schema: str, table: str) -> None: ...
    def run_stats(self, schema: str, table: str) -> None: ...
    def data_capture(self, schema: str, table: str, *, changes: bool) -> None: ...
    def is_captured(self, schema: str, table: str) -> bool: ...
    def ensure_schema(self, user: str) -> None: ...
    def before_query(self) -> None: ...
    def grant(self, grantor: str, sql: MaskedStatement) -> None: ...
    def authorize(self, user: str, schema: str, sql: MaskedStatement) -> None: ...


class Session(Protocol):
    """The session that sends a statement."""

    user: str
    schema: str
    default_lock_timeout: float | None

    @property
    def changes_structure(self) -> bool: ...


_ASN = "ASNCDC"
_PRIVATE = re.compile(
    r"\b(DB2LOG|DB2CAT|SYSCS_UTIL|SYSCS_DIAG|SYS)\s*\.\s*(\w+)|\{\s*fn\b|\bEXTERNAL\s+NAME\b", re.IGNORECASE
)
_SERVICES = re.compile(
    rf"^VALUES\s*\(?\s*({NAME})\s*\.\s*ASNCDCSERVICES\s*\(\s*(\x01\d+\x01)\s*,\s*(\x01\d+\x01)\s*\)\s*\)?$",
    re.IGNORECASE,
)
_CALL = re.compile(rf"^CALL\s+({NAME})\s*\.\s*(\w+)\s*\(\s*(\x01\d+\x01)\s*,\s*(\x01\d+\x01)\s*\)$", re.IGNORECASE)
_ADMIN = re.compile(r"^CALL\s+SYSPROC\s*\.\s*ADMIN_CMD\s*\(\s*(\x01\d+\x01)\s*\)$", re.IGNORECASE)
_PARAMETERS = re.compile(r"^WITH\s+SYSIBM\s*\.\s*SQLPROCEDURECOLS\b", re.IGNORECASE)
"""How the driver's own query begins by which it asks for the parameters of a procedure before it binds values to them."""
_PARAMETERS_OF = (
    "SELECT CAST(NULL AS VARCHAR(128)) AS PROCEDURE_CAT, RTRIM(P.S) AS PROCEDURE_SCHEM, RTRIM(P.N) AS PROCEDURE_NAME, RTRIM(P.C) AS COLUMN_NAME, "
    "CAST(1 AS SMALLINT) AS COLUMN_TYPE, CAST(12 AS SMALLINT) AS DATA_TYPE, 'VARCHAR' AS TYPE_NAME, P.L AS COLUMN_SIZE, P.L AS BUFFER_LENGTH, "
    "CAST(NULL AS SMALLINT) AS DECIMAL_DIGITS, CAST(NULL AS SMALLINT) AS NUM_PREC_RADIX, CAST(1 AS SMALLINT) AS NULLABLE, "
    "CAST(NULL AS VARCHAR(254)) AS REMARKS, CAST(NULL AS VARCHAR(254)) AS COLUMN_DEF, CAST(12 AS SMALLINT) AS SQL_DATA_TYPE, "
    "CAST(NULL AS SMALLINT) AS SQL_DATETIME_SUB, P.L AS CHAR_OCTET_LENGTH, P.O AS ORDINAL_POSITION, 'YES' AS IS_NULLABLE FROM (VALUES "
    "('ASNCDC', 'ADDTABLE', 'TABLESCHEMA', 1, 128), ('ASNCDC', 'ADDTABLE', 'TABLENAME', 2, 128), ('ASNCDC', 'REMOVETABLE', 'TABLESCHEMA', 1, 128), "
    "('ASNCDC', 'REMOVETABLE', 'TABLENAME', 2, 128), ('SYSPROC', 'ADMIN_CMD', 'CMD', 1, 32000)) AS P (S, N, C, O, L) "
    "WHERE CAST(? AS VARCHAR(300)) LIKE '%' || RTRIM(P.N) ORDER BY P.O"
)
"""What the engine is asked in place of it. Its marker is the name as the statement has it, with or without a schema."""
_RUNSTATS = re.compile(rf"^RUNSTATS\s+ON\s+TABLE\s+{QUALIFIED}", re.IGNORECASE)
_CAPTURE = re.compile(
    rf"^ALTER\s+TABLE\s+{QUALIFIED}\s+DATA\s+CAPTURE\s+(CHANGES|NONE)\b(?:\s+INCLUDE\s+LONGVAR\s+COLUMNS)?$",
    re.IGNORECASE,
)
_IGNORED = re.compile(rf"^ALTER\s+TABLE\s+{QUALIFIED}\s+(?:NOT\s+)?VOLATILE(?:\s+CARDINALITY)?$", re.IGNORECASE)
_TABLE = re.compile(rf"^(?:CREATE|ALTER|DROP|RENAME)\s+(?:TABLE|VIEW)\s+{QUALIFIED}", re.IGNORECASE)
_RENAMED = re.compile(rf"^RENAME\s+(?:TABLE\s+)?{QUALIFIED}\s+TO\s+({NAME})$", re.IGNORECASE)
_RENAMES_COLUMN = re.compile(
    rf"^ALTER\s+TABLE\b.*\bRENAME\s+COLUMN\s+({NAME})\s+TO\s+({NAME})", re.IGNORECASE | re.DOTALL
)
_TYPE = re.compile(
    rf"^CREATE\s+(?:DISTINCT\s+)?TYPE\s+{QUALIFIED}\s+AS\s+(.+?)(?:\s+WITH\s+(?:COMPARISONS|\w+\s+TYPE\s+RULES))?$",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT = re.compile(
    rf"^COMMENT\s+ON\s+(?:TABLE\s+{QUALIFIED}|COLUMN\s+{QUALIFIED}\s*\.\s*({NAME}))\s+IS\s+(\x01\d+\x01)$",
    re.IGNORECASE,
)
_COMMENTS = re.compile(rf"^COMMENT\s+ON\s+(?!TABLE\b|COLUMN\b){QUALIFIED}\s*\((.+)\)$", re.IGNORECASE | re.DOTALL)
_COLUMN_COMMENT = re.compile(rf"\s*({NAME})\s+IS\s+(\x01\d+\x01)\s*", re.IGNORECASE)
_DROP_TYPE = re.compile(rf"^DROP\s+(?:DISTINCT\s+)?TYPE\s+{QUALIFIED}$", re.IGNORECASE)
_INDEX = re.compile(rf"^CREATE\s+(?:UNIQUE\s+)?INDEX\s+{QUALIFIED}\s+ON\s+{QUALIFIED}", re.IGNORECASE)
_NO_TABLE = re.compile(r"^(?:CREATE|ALTER|DROP)\s+(?:SCHEMA|SEQUENCE)\b", re.IGNORECASE)
_STRUCTURE = re.compile(r"^(?:CREATE|ALTER|DROP|RENAME|COMMENT)\b", re.IGNORECASE)
_TRUNCATE = re.compile(rf"^TRUNCATE\s+(?:TABLE\s+)?{QUALIFIED}(.*)$", re.IGNORECASE | re.DOTALL)
_TIMEOUT = re.compile(
    r"^SET\s+(?:CURRENT\s+)?LOCK\s+TIMEOUT\s*=?\s*(?:WAIT\s+)?(NOT\s+WAIT|NULL|WAIT|-?\d+)$", re.IGNORECASE
)
_SCHEMA = re.compile(rf"^SET\s+(?:CURRENT\s+)?SCHEMA\s*=?\s*({NAME})$", re.IGNORECASE)
_GRANT = re.compile(r"^(?:GRANT|REVOKE)\b", re.IGNORECASE)
_ALTERS_COLUMNS = re.compile(
    r"\b(?:DROP\s+(?:COLUMN\b|(?!CONSTRAINT|PRIMARY|UNIQUE|FOREIGN|CHECK|DEFAULT|NOT|IDENTITY)\w)|ALTER\s+(?:COLUMN\s+)?\S+\s+SET\s+DATA\s+TYPE)",
    re.IGNORECASE,
)
_LENGTHENS = re.compile(r"\bSET\s+DATA\s+TYPE\s+(?:VARCHAR|VARGRAPHIC|VARBINARY)\b", re.IGNORECASE)
_FIRST = re.compile(
    r"^\(*\s*(SELECT|VALUES|WITH|INSERT|UPDATE|DELETE|LOCK|CALL|SET|CREATE|ALTER|DROP|RENAME|TRUNCATE|COMMENT|GRANT|REVOKE|COMMIT|ROLLBACK|MERGE|DECLARE|SAVEPOINT|RELEASE)\b",
    re.IGNORECASE,
)


def plan_statement(text: str, session: Session, server: Server) -> Plan:
    """Decide what a statement is, and do at once what the server itself is to do."""
    sql = MaskedStatement(text)
    if found := _PRIVATE.search(sql.text):
        raise (
            undefined_object_error(sql.shown(found.group()).upper())
            if found.group(1)
            else Db2Error(-104, "42601", found.group(), text[:40])
        )
    if not _FIRST.match(sql.text):
        raise Db2Error(-104, "42601", text[:40], "BEGIN-OF-STATEMENT", "<query>")
    if _GRANT.match(sql.text):
        server.grant(session.user, sql)
        return Plan(NOTHING)
    if _PARAMETERS.match(sql.text):
        return Plan(_PARAMETERS_OF)
    if found := _TIMEOUT.match(sql.text):
        return Plan(NOTHING, lock_timeout=_seconds(found.group(1), session))
    return (
        _of_asn(sql, session, server)
        or _of_types(sql, session, server)
        or _of_comments(sql, session, server)
        or _of_structure(sql, session, server)
        or _of_rows(sql, session, server)
    )


def _seconds(word: str, session: Session) -> float | None:
    word = " ".join(word.upper().split())
    if word == "NULL":
        return session.default_lock_timeout
    if word == "NOT WAIT":
        return 0
    if word in ("WAIT", "-1"):
        return None
    return float(word)


def _of_asn(sql: MaskedStatement, session: Session, server: Server) -> Plan | None:
    """Stored procedures and functions of the capture agent, and DATA CAPTURE: the server does them at once, in a separate transaction."""
    found = _SERVICES.match(sql.text)
    if found and sql.name(found.group(1)) == _ASN:
        answer = server.services(sql.literal(found.group(2)))
        quoted = answer.replace("'", "''")
        return Plan(f"VALUES CAST('{quoted}' AS VARCHAR(1024))")
    if found := _ADMIN.match(sql.text):
        command = MaskedStatement(sql.literal(found.group(1)))
        if not (stats := _RUNSTATS.match(command.text)):
            raise unsupported_statement_error(f"ADMIN_CMD: {command.shown(command.text)[:40]}")
        server.run_stats(*_table(command, session, stats.group(1), stats.group(2)))
        return Plan(NOTHING)
    call, capture = _CALL.match(sql.text), _CAPTURE.match(sql.text)
    if call and sql.name(call.group(1)) != _ASN:
        return None
    if call is None and capture is None:
        if re.match(r"^CALL\s+ASNCDC\b", sql.text, re.IGNORECASE):
            raise Db2Error(-440, "42884", "ASNCDC", "PROCEDURE", "literals as arguments")
        return None
    if session.changes_structure:
        raise unsupported_statement_error("this statement in a transaction that has changed structure: commit first")
    if call:
        procedure, schema, table = call.group(2).upper(), sql.literal(call.group(3)), sql.literal(call.group(4))
        if procedure not in ("ADDTABLE", "REMOVETABLE"):
            raise Db2Error(-440, "42884", f"ASNCDC.{procedure}", "PROCEDURE")
        if procedure == "ADDTABLE":
            server.add_table(schema, table, creator=session.user)
        else:
            server.remove_table(schema, table)
    elif capture:
        schema, table = _table(sql, session, capture.group(1), capture.group(2))
        server.data_capture(schema, table, changes=capture.group(3).upper() == "CHANGES")
    return Plan(NOTHING)


def _of_types(sql: MaskedStatement, session: Session, server: Server) -> Plan | None:
    """Distinct types: the server remembers them, at once."""
    if found := _TYPE.match(sql.text):
        server.create_type(*_table(sql, session, found.group(1), found.group(2)), sql.shown(found.group(3)))
        return Plan(NOTHING)
    if found := _DROP_TYPE.match(sql.text):
        server.drop_type(*_table(sql, session, found.group(1), found.group(2)))
        return Plan(NOTHING)
    return None


def _of_comments(sql: MaskedStatement, session: Session, server: Server) -> Plan | None:
    """``COMMENT ON`` a table, a column, or several columns at once."""
    if found := _COMMENT.match(sql.text):
        schema, table, column_schema, column_table, column, remark = found.groups()
        named = _table(sql, session, schema or column_schema, table or column_table)
        server.comment(*named, {sql.name(column) if column else "": sql.literal(remark)})
        return Plan(NOTHING)
    if found := _COMMENTS.match(sql.text):
        parts = [_COLUMN_COMMENT.fullmatch(part) for part in found.group(3).split(",")]
        if all(parts):
            comments = {sql.name(part[1]): sql.literal(part[2]) for part in parts if part}
            server.comment(*_table(sql, session, found.group(1), found.group(2)), comments)
            return Plan(NOTHING)
    return None


def _of_structure(sql: MaskedStatement, session: Session, server: Server) -> Plan | None:
    if found := _TRUNCATE.match(sql.text):
        return _plan_truncate(sql, session, server, found)
    if not _STRUCTURE.match(sql.text):
        return None
    if _IGNORED.match(sql.text):
        return Plan(NOTHING)
    if _NO_TABLE.match(sql.text):  # the catalogue of tables stays as it is
        return Plan(translate_statement(sql, session.user, structure=True))
    written = sql.shown(sql.text)
    for (schema, name), words in server.distinct_types().items():
        own = "?" if schema == session.schema else ""
        sql.text = re.sub(
            rf"(?<=\s)(?:{re.escape(schema)}\s*\.\s*){own}{re.escape(name)}(?=[\s,)]|$)",
            words,
            sql.text,
            flags=re.IGNORECASE,
        )
    plan = Plan(translate_statement(sql, session.user, structure=True), structure=True)
    if found := _INDEX.match(sql.text):
        plan.touched.append(_table(sql, session, found.group(3) or found.group(1), found.group(4)))
    elif found := _TABLE.match(sql.text):
        table = _table(sql, session, found.group(1), found.group(2))
        plan.touched.append(table)
        _refuse_what_captured_tables_refuse(sql, server, table)
        if renamed := _RENAMED.match(sql.text):
            plan.touched.append((table[0], sql.name(renamed.group(3))))
        if column := _RENAMES_COLUMN.search(sql.text):
            plan.renamed_column = (sql.name(column.group(1)), sql.name(column.group(2)))
        if (renamed or column) and server.is_captured(*table):
            server.suspend(*table)  # the engine renames nothing that triggers speak of
        if re.match(r"^CREATE\s+TABLE\b", sql.text, re.IGNORECASE):
            plan.declared[table] = written
            if re.search(r"\bDATA\s+CAPTURE\s+CHANGES\b", sql.text, re.IGNORECASE):
                plan.captured[table] = True
        elif re.match(r"^ALTER\s+TABLE\b", sql.text, re.IGNORECASE):
            plan.declared[table] = written
    return plan


def _refuse_what_captured_tables_refuse(sql: MaskedStatement, server: Server, table: Table) -> None:
    """Db2 does not drop columns of tables with DATA CAPTURE CHANGES, nor change their types, but for longer strings; nor renames such tables' columns here."""
    text = sql.text
    if not re.match(r"^(ALTER|RENAME)\b", text, re.IGNORECASE) or not server.is_captured(*table):
        return
    if _ALTERS_COLUMNS.search(text) and not _LENGTHENS.search(text):
        raise Db2Error(-270, "42997", "100", f"{table[0]}.{table[1]} has DATA CAPTURE CHANGES")


def _plan_truncate(sql: MaskedStatement, session: Session, server: Server, found: re.Match[str]) -> Plan:
    table = _table(sql, session, found.group(1), found.group(2))
    if not re.search(r"\bIMMEDIATE\b", found.group(3), re.IGNORECASE):
        raise Db2Error(-104, "42601", "END-OF-STATEMENT", found.group(2), "IMMEDIATE")
    if server.is_captured(*table):
        raise unsupported_statement_error(
            f"TRUNCATE of {table[0]}.{table[1]}, which has DATA CAPTURE CHANGES: what the agent makes of it is not public"
        )
    schema, name = (part.replace('"', '""') for part in table)
    return Plan(f'TRUNCATE TABLE "{schema}"."{name}"')


def _of_rows(sql: MaskedStatement, session: Session, server: Server) -> Plan:
    if found := _SCHEMA.match(sql.text):
        name = sql.literal(found.group(1)) if sql.shown(found.group(1)).startswith("'") else sql.name(found.group(1))
        server.ensure_schema(name)
        return Plan(f'SET SCHEMA "{name}"', schema=name)
    if CATALOGS.search(sql.text):
        server.before_query()
    server.authorize(session.user, session.schema, sql)
    return Plan(translate_statement(sql, session.user, structure=False, lsn_bytes=server.lsn_bytes))


def _table(sql: MaskedStatement, session: Session, schema: str | None, table: str) -> Table:
    return (sql.name(schema) if schema else session.schema), sql.name(table)
