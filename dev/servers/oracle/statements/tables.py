"""CREATE, ALTER, RENAME and DROP TABLE: reads the definitions and changes catalog and storage."""

import base64
import copy
import os
from dataclasses import replace
from typing import Any

from dev.servers.oracle.engine.catalog import Column, Key, Table
from dev.servers.oracle.engine.storage import change_affinity, key_ddl, storage_ddl
from dev.servers.oracle.errors import OraError, unknown
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.lexer import Tokens, split
from dev.servers.oracle.statements import ddl_log, private_tables, table_rows
from dev.servers.oracle.statements.definitions import CONSTRAINT_WORDS, LOG_TYPES, Definition, add_log_group, read_type
from dev.servers.oracle.values.datatypes import DataType

OPTIONS = frozenset(
    {
        "TABLESPACE",
        "PCTFREE",
        "PCTUSED",
        "STORAGE",
        "LOGGING",
        "NOLOGGING",
        "SEGMENT",
        "LOB",
        "ORGANIZATION",
        "PARTITION",
        "COMPRESS",
    }
    | {
        "NOCOMPRESS",
        "ROW",
        "XMLTYPE",
        "ENABLE",
        "CACHE",
        "NOCACHE",
        "PARALLEL",
        "NOPARALLEL",
        "INITRANS",
        "MONITORING",
        "COLUMN",
    }
)
UNCHANGED = frozenset(
    {
        "MOVE",
        "SHRINK",
        "ENABLE",
        "DISABLE",
        "LOGGING",
        "NOLOGGING",
        "PARALLEL",
        "NOPARALLEL",
        "MONITORING",
        "CACHE",
        "NOCACHE",
    }
    | {
        "TRUNCATE",
        "SPLIT",
        "MERGE",
        "EXCHANGE",
        "COMPRESS",
        "NOCOMPRESS",
        "PCTFREE",
        "ALLOCATE",
        "DEALLOCATE",
        "READ",
        "ROW",
    }
)
"""Clauses of ALTER TABLE that change no column."""


def create(session: Session, reader: Tokens) -> None:
    """CREATE TABLE."""
    path = reader.names()
    owner = path[0] if len(path) > 1 else session.schema
    if path[-1].startswith("ORA$PTT_"):
        raise OraError(32463)
    session.privileges.need("CREATE TABLE" if owner == session.user.name else "CREATE ANY TABLE")
    if not session.database.is_schema(owner):
        raise OraError(1918, owner)
    catalog = session.engine.catalog
    if (session.container, owner, path[-1]) in catalog.tables:
        raise OraError(955)
    number = catalog.new_object()
    table = Table(number, owner, path[-1], session.container, [], number, created_at=session.engine.now_text())
    query = None
    with session.engine.writing():
        definition = Definition(session, table, reader.sql)
        if reader.word() == "(":
            entries = split(reader.group())
            for entry in sorted(entries, key=lambda entry: entry[0].word in CONSTRAINT_WORDS):
                definition.element(entry)
        options = [token.word for token in reader.until("AS")]
        if options and options[0] not in OPTIONS:
            raise unknown(reader.sql, options[0])
        if "ORGANIZATION" in options and "INDEX" in options:
            table.organization = "INDEX"
        if "PARTITION" in options and "BY" in options:
            table.organization = "PARTITIONED"
        if reader.skip_words("AS"):
            query = reader.until(";")
        reader.end()
        rows = table_rows.select_rows(session, reader, table, query) if query else []
        for statement in storage_ddl(table):
            session.engine.db.execute(statement)
        for key in table.keys:
            session.engine.db.execute(key_ddl(table, key))
        table.created_scn = table.changed_scn = session.engine.redo.tick()
        catalog.place(table)
        ddl_log.log(session, reader, table, owner, table.name)
    table_rows.fill(session, table, rows)


# ALTER TABLE


def alter(session: Session, reader: Tokens) -> None:
    """ALTER TABLE with one clause or several."""
    table = session.names.table(reader.names(), "ALTER")
    ddl_log.lock(session, table)
    structure = _structure(table)
    with session.engine.writing():
        if reader.skip_words("RENAME", "TO"):
            new = reader.name()
            reader.end()
            rename(session, reader, table, new)
            return
        earlier = copy.deepcopy(table)
        try:
            while reader.more and not reader.skip_words(";"):
                _clause(session, reader, table)
        except OraError:
            earlier.next_column = table.next_column  # numbers of columns are never used twice
            table.__dict__.update(earlier.__dict__)
            raise
        if _structure(table) != structure:
            table.version += 1
            table.changed_scn = session.engine.redo.tick()
        session.engine.catalog.save(table)
        ddl_log.log(session, reader, table, table.owner, table.name)


def _structure(table: Table) -> list[Any]:
    return [(column.id, column.name, column.type, column.nullable, column.unused) for column in table.columns]


def _clause(session: Session, reader: Tokens, table: Table) -> None:
    word = reader.next().text
    if word == "ADD":
        _add(session, reader, table)
    elif word == "MODIFY":
        _modify(session, reader, table)
    elif word == "DROP":
        _drop_clause(session, reader, table)
    elif word == "SET":
        reader.expect("UNUSED")
        names = _names(reader)
        for name in names:
            column = table.column(name)
            column.unused, column.name = True, f"SYS_C{column.id:05d}_{table.version}"
        _forget_columns(table, names)
    elif word == "RENAME":
        _rename_part(reader, table)
    elif word in UNCHANGED:
        reader.until(";")
    else:
        raise unknown(reader.sql, word)


def _names(reader: Tokens) -> list[str]:
    reader.skip_words("COLUMN")
    names = [token.text for token in reader.group() if token.is_identifier] if reader.word() == "(" else [reader.name()]
    reader.skip_words("CASCADE", "CONSTRAINTS")
    reader.skip_words("INVALIDATE")
    return names


def _add(session: Session, reader: Tokens, table: Table) -> None:
    if reader.skip_words("SUPPLEMENTAL", "LOG"):
        add_log_group(table, reader)
        return
    if reader.word() == "PARTITION":
        reader.until(";")
        return
    definition = Definition(session, table, reader.sql)
    entries = split(reader.group()) if reader.word() == "(" else [reader.until(";", "MODIFY", "DROP", "RENAME")]
    known, keys = {column.id for column in table.columns}, list(table.keys)
    for entry in entries:
        definition.element(entry)
    for column in table.columns:
        if column.id not in known:
            _add_storage(session, table, column)
    for key in table.keys:
        if key not in keys:
            table.keys.remove(key)
            add_key(session, table, key)


def _add_storage(session: Session, table: Table, column: Column) -> None:
    database = session.engine.db
    database.execute(f"ALTER TABLE {table.storage} ADD COLUMN c{column.id} {column.type.affinity}")
    if column.default is not None:
        value = session.keep(session.value_of(column.default), column, table)
        database.execute(f"UPDATE {table.storage} SET c{column.id} = ?", (value,))
    elif not column.nullable and database.execute(f"SELECT 1 FROM {table.storage} WHERE _es IS NULL").fetchone():
        raise OraError(1758)


def add_key(session: Session, table: Table, key: Key) -> None:
    """A key on a table that may have rows: ORA-02437 or ORA-01452 when they break it."""
    columns = ", ".join(f"c{table.column(name).id}" for name in key.columns)
    if key.kind != "X":
        double = f"SELECT 1 FROM {table.storage} WHERE _es IS NULL GROUP BY {columns} HAVING COUNT(*) > 1"
        if session.engine.db.execute(double).fetchone():
            raise OraError(900, "ORA-01452: cannot CREATE UNIQUE INDEX; duplicate keys found")
    table.keys.append(key)
    session.engine.db.execute(key_ddl(table, key))


def _modify(session: Session, reader: Tokens, table: Table) -> None:
    if reader.word() in ("PARTITION", "LOB", "CONSTRAINT", "DEFAULT"):
        reader.until(";")
        return
    entries = split(reader.group()) if reader.word() == "(" else [reader.until(";", "ADD", "DROP", "RENAME")]
    definition = Definition(session, table, reader.sql)
    for entry in entries:
        part = Tokens(entry, reader.sql)
        column = table.column(part.name())
        kind = read_type(part)
        if kind is not None and kind != column.type:
            _change_type(session, table, column, kind)
        was_nullable = column.nullable
        definition.attributes(column, part)
        if was_nullable and not column.nullable:
            nulls = f"SELECT 1 FROM {table.storage} WHERE _es IS NULL AND c{column.id} IS NULL"
            if session.engine.db.execute(nulls).fetchone():
                raise OraError(900, "ORA-02296: cannot enable NOT NULL - null values found")


def _change_type(session: Session, table: Table, column: Column, kind: DataType) -> None:
    changed = replace(column, type=kind)
    rows = session.engine.db.execute(
        f"SELECT _v, c{column.id} FROM {table.storage} WHERE _es IS NULL AND c{column.id} IS NOT NULL"
    ).fetchall()
    if rows and kind.kind != column.type.kind:
        raise OraError(900, "ORA-01439: column to be modified must be empty to change datatype")
    if kind.affinity != column.type.affinity:  # a number with more digits is kept in another way
        change_affinity(session.engine.db, table.storage, f"c{column.id}", kind.affinity)
    for version, value in rows:
        kept = session.keep(value, changed, table)
        session.engine.db.execute(f"UPDATE {table.storage} SET c{column.id} = ? WHERE _v = ?", (kept, version))
    column.type = kind


def _drop_clause(session: Session, reader: Tokens, table: Table) -> None:
    if reader.skip_words("SUPPLEMENTAL", "LOG"):
        _drop_log_group(table, reader)
    elif reader.skip_words("CONSTRAINT"):
        name = reader.name()
        reader.until(";", "ADD", "DROP")
        if not any(key.name == name for key in table.keys) and not any(check == name for check, _ in table.checks):
            raise OraError(2443)
        table.keys = [key for key in table.keys if key.name != name]
        table.checks = [check for check in table.checks if check[0] != name]
    elif reader.skip_words("PRIMARY", "KEY"):
        table.keys = [key for key in table.keys if key.kind != "P"]
        reader.skip_words("CASCADE")
    elif reader.skip_words("UNUSED", "COLUMNS"):
        table.columns = table.live
    elif reader.skip_words("PARTITION"):
        reader.until(";")
    else:
        names = _names(reader)
        dropped = [table.column(name) for name in names]
        table.columns = [column for column in table.columns if column not in dropped]
        _forget_columns(table, names)


def _forget_columns(table: Table, names: list[str]) -> None:
    table.keys = [key for key in table.keys if not set(key.columns) & set(names)]
    table.log_groups = [
        (group, kind, [name for name in columns if name not in names]) for group, kind, columns in table.log_groups
    ]


def _rename_part(reader: Tokens, table: Table) -> None:
    of_column = reader.skip_words("COLUMN")
    if not of_column:
        reader.expect("CONSTRAINT")
    old = reader.name()
    reader.expect("TO")
    new = reader.name()
    if of_column:
        if table.has(new):
            raise OraError(957)
        table.column(old).name = new
        table.keys = [
            replace(key, columns=[new if name == old else name for name in key.columns]) for key in table.keys
        ]
    else:
        table.keys = [replace(key, name=new) if key.name == old else key for key in table.keys]


def _drop_log_group(table: Table, reader: Tokens) -> None:
    if reader.skip_words("GROUP"):
        name = reader.name()
        table.log_groups = [group for group in table.log_groups if group[0] != name]
        return
    reader.expect("DATA")
    kind = LOG_TYPES.get(" ".join(token.text for token in reader.group()))
    reader.expect("COLUMNS")
    table.log_groups = [group for group in table.log_groups if group[1] != kind]


# RENAME and DROP


def rename(session: Session, reader: Tokens, table: Table, new: str) -> None:
    """Another name in the same schema."""
    catalog = session.engine.catalog
    ddl_log.lock(session, table)
    if (table.container, table.owner, new) in catalog.tables:
        raise OraError(955)
    with session.engine.writing():
        ddl_log.log(session, reader, table, table.owner, table.name)
        del catalog.tables[table.container, table.owner, table.name]
        table.name = new
        table.version += 1
        catalog.place(table)


def drop(session: Session, reader: Tokens) -> None:
    """DROP TABLE: into the recycle bin, which the redo shows as a rename before it, unless it says PURGE."""
    table = session.names.table(reader.names(), "DROP")
    ddl_log.lock(session, table)
    reader.skip_words("CASCADE", "CONSTRAINTS")
    purge = reader.skip_words("PURGE")
    reader.end()
    if table.private:
        private_tables.drop(session, table)
        return
    text = None
    if not purge:
        bin_name = f"BIN${base64.b64encode(os.urandom(16)).decode()}$0"
        renamed = f'ALTER TABLE {table.full_name} RENAME TO "{bin_name}" '
        ddl_log.log(session, reader, table, table.owner, table.name, text=renamed)
        text = f'{reader.sql.rstrip().rstrip(";")} AS "{bin_name}" '
    remove(session, reader, table, text)


def remove(session: Session, reader: Tokens, table: Table, text: str | None) -> None:
    """Forget a table. Its rows stay in the storage: LogMiner may still meet them."""
    with session.engine.writing():
        ddl_log.log(session, reader, table, table.owner, table.name, text=text)
        session.engine.catalog.remove(table)
