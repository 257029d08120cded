"""DDL and administration: the statement is read here, tables are changed in :mod:`dev.servers.oracle.statements.tables`."""

import re

from dev.servers.oracle.engine.catalog import Key, Sequence, Table, User
from dev.servers.oracle.engine.privileges import ROLES, SYSTEM_PRIVILEGES
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import STRING, Tokens
from dev.servers.oracle.sql.statements import Statement
from dev.servers.oracle.statements import ddl_log, private_tables, tables
from dev.servers.oracle.values.datatypes import DataType, qualify_names

SUPPLEMENTAL = {"ALL": "ALL", "PRIMARY KEY": "PK", "UNIQUE": "UI", "FOREIGN KEY": "FK"}
IGNORED_SYSTEM = ("CHECKPOINT", "FLUSH", "REGISTER")


def execute(session: Session, statement: Statement) -> None:
    """Run a statement; it commits what the session has done before, as in Oracle."""
    reader = statement.reader()
    handlers = {
        "CREATE": _create, "ALTER": _alter, "DROP": _drop, "TRUNCATE": _truncate, "RENAME": _rename, "COMMENT": _comment,
        "GRANT": _grant, "REVOKE": _grant, "PURGE": _purge, "ANALYZE": _analyze,
    }  # fmt: skip
    handler = handlers.get(statement.word)
    if handler is None:
        raise unknown(statement.sql)
    if session.standby:
        raise OraError(16000)
    session.commit()
    handler(session, reader)


# CREATE


def _create(session: Session, reader: Tokens) -> None:
    reader.expect("CREATE")
    if reader.skip_words("TABLE"):
        tables.create(session, reader)
    elif reader.skip_words("PRIVATE", "TEMPORARY", "TABLE"):
        private_tables.create(session, reader)
    elif reader.skip_words("UNIQUE", "INDEX"):
        _create_index(session, reader, "I")
    elif reader.skip_words("INDEX") or reader.skip_words("BITMAP", "INDEX"):
        _create_index(session, reader, "X")
    elif reader.skip_words("SEQUENCE"):
        _create_sequence(session, reader)
    elif reader.skip_words("USER"):
        _create_user(session, reader)
    elif reader.skip_words("TABLESPACE"):
        session.privileges.need("CREATE TABLESPACE")
    else:
        raise unknown(reader.sql)


def _create_index(session: Session, reader: Tokens, kind: str) -> None:
    name = reader.names()[-1]
    reader.expect("ON")
    table = session.names.table(reader.names(), "ALTER")
    columns = [token.text for token in reader.group() if token.is_identifier and token.word not in ("ASC", "DESC")]
    ddl_log.lock(session, table)
    if any(key.name == name for one in _tables_of(session, table.owner) for key in one.keys):
        raise OraError(955)
    with session.engine.writing():
        tables.add_key(session, table, Key(name, kind, columns))
        session.engine.catalog.save(table)
        ddl_log.log(session, reader, table, table.owner, name)


def _tables_of(session: Session, owner: str) -> list[Table]:
    """The tables of a schema: names of indexes are unique in one."""
    tables_ = session.engine.catalog.tables.values()
    return [table for table in tables_ if table.owner == owner and table.container == session.container]


def _create_sequence(session: Session, reader: Tokens) -> None:
    session.privileges.need("CREATE SEQUENCE")
    path = reader.names()
    options = " ".join(token.text for token in reader.until(";"))
    start = re.search(r"START WITH (\d+)", options)
    step = re.search(r"INCREMENT BY (-? ?\d+)", options)
    increment = int(step[1].replace(" ", "")) if step else 1
    first = int(start[1]) if start else 1
    owner = path[0] if len(path) > 1 else session.schema
    with session.engine.writing():
        session.engine.catalog.save(Sequence(owner, path[-1], session.container, first - increment, increment))
        ddl_log.log(session, reader, None, owner, path[-1])


def _create_user(session: Session, reader: Tokens) -> None:
    session.privileges.need("CREATE USER")
    name = reader.name()
    reader.expect("IDENTIFIED", "BY")
    token = reader.next()
    if name in session.engine.catalog.users:
        raise OraError(1920, name)
    password = token.raw.strip('"') if token.kind in ("name", "quoted") else token.text
    with session.engine.writing():
        session.engine.catalog.save(User(name, password, common=name.startswith("C##")))


# ALTER


def _alter(session: Session, reader: Tokens) -> None:
    reader.expect("ALTER")
    if reader.skip_words("TABLE"):
        tables.alter(session, reader)
    elif reader.skip_words("DATABASE") or reader.skip_words("PLUGGABLE", "DATABASE"):
        _alter_database(session, reader)
    elif reader.skip_words("SYSTEM"):
        _alter_system(session, reader)
    elif reader.skip_words("USER"):
        _alter_user(session, reader)
    elif reader.skip_words("INDEX"):
        _no_column(session, reader)
    else:
        raise unknown(reader.sql)


def _no_column(session: Session, reader: Tokens) -> None:
    """DDL of an index: logged, and nothing else to see."""
    path = reader.names()
    ddl_log.log(session, reader, None, path[0] if len(path) > 1 else session.schema, path[-1])


def _alter_database(session: Session, reader: Tokens) -> None:
    session.privileges.need("ALTER DATABASE")
    add = reader.skip_words("ADD", "SUPPLEMENTAL", "LOG", "DATA")
    if not add:
        reader.expect("DROP", "SUPPLEMENTAL", "LOG", "DATA")
    kind = "MIN"
    if reader.word() == "(":
        kind = SUPPLEMENTAL.get(" ".join(token.text for token in reader.group()), "")
        reader.expect("COLUMNS")
    reader.end()
    if not kind:
        raise unknown(reader.sql)
    facts = session.engine.catalog.facts
    with session.engine.writing():
        kinds = facts.supplemental
        if session.database.cdb and session.container != session.database.root:
            if add and not kinds and not session.database.settings.autonomous:
                raise OraError(31541)
            kinds = facts.supplemental_inside.setdefault(session.container, set())
        (kinds.add if add else kinds.discard)(kind)
        session.engine.catalog.save(facts)


def _alter_system(session: Session, reader: Tokens) -> None:
    session.privileges.need("ALTER SYSTEM")
    if reader.skip_words("SWITCH", "LOGFILE") or reader.skip_words("ARCHIVE", "LOG", "CURRENT"):
        session.database.switch_log(session.thread)
    elif reader.skip_words("SET"):
        name = reader.name().lower()
        reader.expect("=")
        facts = session.engine.catalog.facts
        facts.parameters[name] = reader.next().text
        with session.engine.writing():
            session.engine.catalog.save(facts)
    elif reader.word() not in IGNORED_SYSTEM:
        raise unknown(reader.sql)


def _alter_user(session: Session, reader: Tokens) -> None:
    session.privileges.need("CREATE USER")
    user = _user(session, reader.name())
    if reader.skip_words("IDENTIFIED", "BY"):
        token = reader.next()
        user.password = token.raw.strip('"') if token.kind in ("name", "quoted") else token.text
    elif reader.word() not in ("QUOTA", "DEFAULT", "ACCOUNT", "TEMPORARY"):
        raise unknown(reader.sql)
    with session.engine.writing():
        session.engine.catalog.save(user)


def _user(session: Session, name: str) -> User:
    try:
        return session.engine.catalog.users[name]
    except KeyError:
        raise OraError(1918, name) from None


# DROP, TRUNCATE, RENAME, COMMENT


def _drop(session: Session, reader: Tokens) -> None:
    reader.expect("DROP")
    if reader.skip_words("TABLE"):
        tables.drop(session, reader)
    elif reader.skip_words("INDEX"):
        _drop_index(session, reader)
    elif reader.skip_words("SEQUENCE"):
        path = reader.names()
        owner = path[0] if len(path) > 1 else session.schema
        sequence = session.engine.catalog.sequences.get((session.container, owner, path[-1]))
        if sequence is None:
            raise OraError(2289)
        with session.engine.writing():
            session.engine.catalog.remove_sequence(sequence)
            ddl_log.log(session, reader, None, owner, path[-1])
    elif reader.skip_words("USER"):
        session.privileges.need("CREATE USER")
        user = _user(session, reader.name())
        for table in [table for table in session.engine.catalog.tables.values() if table.owner == user.name]:
            tables.remove(
                session, reader, table, f'drop table "{table.owner}"."{table.name}" cascade constraints purge'
            )
        with session.engine.writing():
            del session.engine.catalog.users[user.name]
            session.engine.db.execute("DELETE FROM dictionary WHERE kind = 'user' AND key = ?", (user.name,))
    else:
        raise unknown(reader.sql)


def _drop_index(session: Session, reader: Tokens) -> None:
    *path, name = reader.names()
    for table in _tables_of(session, path[0] if path else session.schema):
        for key in table.keys:
            if key.name == name and key.kind in "IX":
                with session.engine.writing():
                    table.keys.remove(key)
                    session.engine.catalog.save(table)
                    ddl_log.log(session, reader, table, table.owner, name)
                return
    raise OraError(900, "ORA-01418: specified index does not exist")


def _truncate(session: Session, reader: Tokens) -> None:
    reader.expect("TRUNCATE", "TABLE")
    table = session.names.table(reader.names(), "DROP")
    ddl_log.lock(session, table)
    with session.engine.writing():
        scn = session.engine.redo.tick()
        session.engine.db.execute(f"UPDATE {table.storage} SET _es = ? WHERE _es IS NULL", (scn,))
        table.data_ids_before = [*table.data_ids_before, (scn, table.data_id)]
        table.data_id = session.engine.catalog.new_object()
        session.engine.catalog.save(table)
        ddl_log.log(session, reader, table, table.owner, table.name)


def _rename(session: Session, reader: Tokens) -> None:
    reader.expect("RENAME")
    table = session.names.table([reader.name()], "ALTER")
    reader.expect("TO")
    new = reader.name()
    reader.end()
    tables.rename(session, reader, table, new)


def _comment(session: Session, reader: Tokens) -> None:
    reader.expect("COMMENT", "ON")
    of_table = reader.skip_words("TABLE")
    if not of_table:
        reader.expect("COLUMN")
    path = reader.names()
    reader.expect("IS")
    text = reader.next()
    if text.kind != STRING:
        raise OraError(1780)
    reader.end()
    names = path if of_table else path[:-1]
    if names[-1].startswith("BIN$"):
        raise OraError(38301)
    table = session.names.table(names, "ALTER")
    with session.engine.writing():
        if of_table:
            table.comment = text.text or None
        else:
            table.column(path[-1]).comment = text.text or None
        session.engine.catalog.save(table)
        ddl_log.log(session, reader, table, table.owner, table.name)


def _purge(session: Session, reader: Tokens) -> None:
    reader.expect("PURGE")
    if not (reader.skip_words("RECYCLEBIN") or reader.skip_words("DBA_RECYCLEBIN")):
        raise unknown(reader.sql)


def _analyze(session: Session, reader: Tokens) -> None:
    reader.expect("ANALYZE", "TABLE")
    session.names.table(reader.names(), "SELECT")


# GRANT and REVOKE


def _grant(session: Session, reader: Tokens) -> None:
    grant = reader.next().text == "GRANT"
    actions = " ".join(token.text for token in reader.until("ON", "TO", "FROM")).split(" , ")
    target = ""
    if reader.skip_words("ON"):
        target = _grant_target(session, reader.names())
    else:
        session.privileges.need("CREATE USER")
    if not reader.skip_words("TO" if grant else "FROM"):
        raise unknown(reader.sql)
    user = _user(session, reader.name())
    reader.until(";")
    for action in actions:
        if not target and action not in SYSTEM_PRIVILEGES | ROLES | {"ALL PRIVILEGES"}:
            raise OraError(900, f"ORA-00990: missing or invalid privilege {action}")
        name = f"{action} ON {target}" if target else "DBA" if action == "ALL PRIVILEGES" else action
        (user.grants.add if grant else user.grants.discard)(name)
    with session.engine.writing():
        session.engine.catalog.save(user)


def _grant_target(session: Session, path: list[str]) -> str:
    if path[-1].startswith(("V_$", "DBMS_", "DBA_", "V$")) or path[0] == "SYS":
        session.privileges.need("CREATE USER")
        return path[-1].replace("V$", "V_$") if path[-1].startswith("V$") else path[-1]
    owner = path[0] if len(path) > 1 else session.schema
    table = session.engine.catalog.tables.get((session.container, owner, path[-1]))
    if table is None:
        raise OraError(942)
    if owner != session.user.name:
        session.privileges.need("DBA", "CREATE USER")
    return f"{owner}.{path[-1]}"


# GET_DDL


def get_ddl(session: Session, kind: str, name: str, owner: str) -> str:
    """DBMS_METADATA.GET_DDL of a table."""
    table = session.engine.catalog.tables.get((session.container, owner, name))
    if table is None or kind != "TABLE" or not session.privileges.sees(table):
        raise OraError(31603, name, kind, owner)
    lines = [
        _column_ddl(column.name, column.type, column.default, column.nullable, column.generated)
        for column in table.live
    ]
    for key in table.keys:
        if key.kind in "PU":
            words = "PRIMARY KEY" if key.kind == "P" else "UNIQUE"
            columns = ", ".join(qualify_names(column) for column in key.columns)
            lines.append(f"CONSTRAINT {qualify_names(key.name)} {words} ({columns})\n  USING INDEX  ENABLE")
    for group, log_kind, columns_logged in table.log_groups:
        if log_kind == "USER LOG GROUP":
            names = ", ".join(qualify_names(column) for column in columns_logged)
            lines.append(f"SUPPLEMENTAL LOG GROUP {qualify_names(group)} ({names}) ALWAYS")
        else:
            lines.append(
                f"SUPPLEMENTAL LOG DATA ({log_kind.replace(' COLUMN LOGGING', '').replace(' KEY LOGGING', ' KEY')}) COLUMNS"
            )
    organization = " ORGANIZATION INDEX" if table.organization == "INDEX" else ""
    body = ", \n\t".join(lines)
    return f"\n  CREATE TABLE {table.full_name} \n   (\t{body}\n   ) {organization}"


def _column_ddl(name: str, kind: DataType, default: str | None, nullable: bool, generated: str | None) -> str:
    text = f"{qualify_names(name)} {kind.ddl}"
    if generated:
        text += f" GENERATED {generated} AS IDENTITY"
    elif default is not None:
        text += f" DEFAULT {default}"
    return text if nullable else f"{text} NOT NULL ENABLE"
