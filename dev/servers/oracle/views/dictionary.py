"""The dictionary views, each as ALL_, USER_, DBA_ and CDB_."""

from collections.abc import Callable, Iterator
from typing import Any

from dev.servers.oracle.engine.catalog import Column, Key, Table
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.values import rowids
from dev.servers.oracle.values.datatypes import LOB_KINDS, NATIONAL_KINDS, TEXT_KINDS
from dev.servers.oracle.views.base import View, no_rows, view

Row = dict[str, Any]
RowsOf = Callable[[Session, Table], Iterator[Row]]
LENGTHS = {"NUMBER": 22, "FLOAT": 22, "DATE": 7, "BINARY_FLOAT": 4, "BINARY_DOUBLE": 8, "ROWID": 10, "XMLTYPE": 2000}
LENGTHS |= {"TIMESTAMP": 11, "TIMESTAMP_LTZ": 11, "TIMESTAMP_TZ": 13, "INTERVAL_DS": 11, "INTERVAL_YM": 5}
BLOCK = 8192
BLOCKS_IN_EXTENT = 8


def _table(session: Session, table: Table) -> Iterator[Row]:
    yield {
        "OWNER": table.owner, "TABLE_NAME": table.name, "TABLESPACE_NAME": "USERS", "STATUS": "VALID", "TEMPORARY": "N",
        "NESTED": "NO", "PARTITIONED": "YES" if table.organization == "PARTITIONED" else "NO", "IOT_TYPE": "IOT" if table.organization == "INDEX" else None, "SECONDARY": "N",
        "DROPPED": "NO", "MONITORING": "YES", "NUM_ROWS": None, "BLOCKS": None, "COMPRESSION": "DISABLED", "READ_ONLY": "NO",
    }  # fmt: skip


def _columns(session: Session, table: Table) -> Iterator[Row]:
    for position, column in enumerate(table.live, 1):
        yield _column(table, column, position)


def _all_columns(session: Session, table: Table) -> Iterator[Row]:
    """With those that are unused: they have no number of the user's, but a place in the stored row."""
    seen = 0
    for place, column in enumerate(table.columns, 1):
        seen += not column.unused
        hidden = {"COLUMN_ID": None, "HIDDEN_COLUMN": "YES", "USER_GENERATED": "NO"} if column.unused else {}
        yield _column(table, column, seen) | {"SEGMENT_COLUMN_ID": place, "INTERNAL_COLUMN_ID": place} | hidden


def _column(table: Table, column: Column, position: int) -> Row:
    kind = column.type
    is_text = kind.kind in TEXT_KINDS
    length = LENGTHS.get(kind.kind, 4000 if kind.kind in LOB_KINDS else kind.length or 0)
    if is_text and kind.characters:
        length = (kind.length or 0) * (2 if kind.kind in NATIONAL_KINDS else 4)
    precision = kind.precision if kind.kind in ("NUMBER", "FLOAT", "INTERVAL_DS", "INTERVAL_YM") else None
    scale = kind.scale if kind.kind in ("NUMBER", "TIMESTAMP", "TIMESTAMP_TZ", "TIMESTAMP_LTZ", "INTERVAL_DS") else None
    if kind.kind == "NUMBER" and kind.precision == 38 and kind.scale == 0:
        precision = None  # INTEGER, which is NUMBER(*,0)
    return {
        "OWNER": table.owner, "TABLE_NAME": table.name, "COLUMN_NAME": column.name, "DATA_TYPE": kind.name,
        "DATA_TYPE_OWNER": {"XMLTYPE": "PUBLIC", "ODCINUMBERLIST": "SYS"}.get(kind.kind), "DATA_LENGTH": length, "DATA_PRECISION": precision,
        "DATA_SCALE": scale, "NULLABLE": "Y" if column.nullable else "N", "COLUMN_ID": position,
        "DEFAULT_LENGTH": len(column.default) if column.default else None, "DATA_DEFAULT": column.default,
        "CHAR_LENGTH": kind.length if is_text else 0, "CHAR_USED": ("C" if kind.characters else "B") if is_text else None,
        "CHARACTER_SET_NAME": "NCHAR_CS" if kind.kind in NATIONAL_KINDS else "CHAR_CS" if is_text or kind.kind == "CLOB" else None,
        "HIDDEN_COLUMN": "NO", "VIRTUAL_COLUMN": "NO", "SEGMENT_COLUMN_ID": position, "INTERNAL_COLUMN_ID": position,
        "IDENTITY_COLUMN": "YES" if column.generated else "NO", "DEFAULT_ON_NULL": "NO", "USER_GENERATED": "YES",
        "QUALIFIED_COL_NAME": column.name, "COMMENTS": column.comment,
    }  # fmt: skip


def _index_name(table: Table, key: Key) -> str:
    return key.name


def _constraints(session: Session, table: Table) -> Iterator[Row]:
    base = {
        "OWNER": table.owner,
        "TABLE_NAME": table.name,
        "STATUS": "ENABLED",
        "VALIDATED": "VALIDATED",
        "GENERATED": "USER NAME",
    }
    for key in table.keys:
        if key.kind in "PU":
            status = "ENABLED" if key.enabled else "DISABLED"
            index = {"INDEX_OWNER": table.owner, "INDEX_NAME": _index_name(table, key)}
            yield base | index | {"CONSTRAINT_NAME": key.name, "CONSTRAINT_TYPE": key.kind, "STATUS": status}
    for column in table.live:
        if not column.nullable:
            text = f'"{column.name}" IS NOT NULL'
            yield base | {
                "CONSTRAINT_NAME": f"SYS_C{table.id}{column.id:02d}",
                "CONSTRAINT_TYPE": "C",
                "SEARCH_CONDITION": text,
            }
    for name, text in table.checks:
        yield base | {"CONSTRAINT_NAME": name, "CONSTRAINT_TYPE": "C", "SEARCH_CONDITION": text}


def _constraint_columns(session: Session, table: Table) -> Iterator[Row]:
    base = {"OWNER": table.owner, "TABLE_NAME": table.name}
    for key in table.keys:
        for position, name in enumerate(key.columns if key.kind in "PU" else [], 1):
            yield base | {"CONSTRAINT_NAME": key.name, "COLUMN_NAME": name, "POSITION": position}
    for column in table.live:
        if not column.nullable:
            yield base | {
                "CONSTRAINT_NAME": f"SYS_C{table.id}{column.id:02d}",
                "COLUMN_NAME": column.name,
                "POSITION": None,
            }


def _indexes(session: Session, table: Table) -> Iterator[Row]:
    for key in table.keys:
        top = table.organization == "INDEX" and key.kind == "P"
        yield {
            "OWNER": table.owner, "INDEX_NAME": _index_name(table, key), "INDEX_TYPE": "IOT - TOP" if top else "NORMAL", "TABLE_OWNER": table.owner,
            "TABLE_NAME": table.name, "TABLE_TYPE": "TABLE", "UNIQUENESS": "NONUNIQUE" if key.kind == "X" else "UNIQUE", "STATUS": "VALID",
        }  # fmt: skip


def _index_columns(session: Session, table: Table) -> Iterator[Row]:
    for key in table.keys:
        for position, name in enumerate(key.columns, 1):
            yield {
                "INDEX_OWNER": table.owner, "INDEX_NAME": _index_name(table, key), "TABLE_OWNER": table.owner,
                "TABLE_NAME": table.name, "COLUMN_NAME": name, "COLUMN_POSITION": position, "DESCEND": "ASC",
            }  # fmt: skip


def _objects(session: Session, table: Table) -> Iterator[Row]:
    base = {
        "OWNER": table.owner,
        "CREATED": table.created_at,
        "LAST_DDL_TIME": table.created_at,
        "STATUS": "VALID",
        "TEMPORARY": "N",
    }
    yield base | {
        "OBJECT_NAME": table.name,
        "OBJECT_ID": table.id,
        "DATA_OBJECT_ID": table.data_id,
        "OBJECT_TYPE": "TABLE",
    }
    if table.organization == "PARTITIONED" and table.name not in session.database.dropped_partitions:
        numbers = {"OBJECT_ID": table.segment_id, "DATA_OBJECT_ID": table.segment_id}
        yield base | numbers | {"OBJECT_NAME": table.name, "SUBOBJECT_NAME": "P1", "OBJECT_TYPE": "TABLE PARTITION"}
    for key in table.keys:
        yield base | {
            "OBJECT_NAME": key.name,
            "OBJECT_ID": table.id * 100,
            "DATA_OBJECT_ID": table.id * 100,
            "OBJECT_TYPE": "INDEX",
        }


def _log_groups(session: Session, table: Table) -> Iterator[Row]:
    for name, kind, _ in table.log_groups:
        generated = "USER NAME" if kind == "USER LOG GROUP" else "GENERATED NAME"
        yield {
            "OWNER": table.owner,
            "LOG_GROUP_NAME": name,
            "TABLE_NAME": table.name,
            "LOG_GROUP_TYPE": kind,
            "ALWAYS": "ALWAYS",
            "GENERATED": generated,
        }


def _log_group_columns(session: Session, table: Table) -> Iterator[Row]:
    for name, _, columns in table.log_groups:
        for position, column in enumerate(columns, 1):
            yield {
                "OWNER": table.owner,
                "LOG_GROUP_NAME": name,
                "TABLE_NAME": table.name,
                "COLUMN_NAME": column,
                "POSITION": position,
                "LOGGING_PROPERTY": "LOG",
            }


def _comments(session: Session, table: Table) -> Iterator[Row]:
    yield {"OWNER": table.owner, "TABLE_NAME": table.name, "TABLE_TYPE": "TABLE", "COMMENTS": table.comment}


def _lobs(session: Session, table: Table) -> Iterator[Row]:
    for column in table.live:
        if column.type.kind in LOB_KINDS:
            yield {
                "OWNER": table.owner,
                "TABLE_NAME": table.name,
                "COLUMN_NAME": column.name,
                "IN_ROW": "YES",
                "SECUREFILE": "YES",
                "SEGMENT_NAME": f"SYS_LOB{table.id}",
            }


def _extents(session: Session, table: Table) -> Iterator[Row]:
    last = session.engine.db.execute(f"SELECT MAX(_r) FROM {table.storage}").fetchone()[0]
    blocks = 0 if last is None else last // rowids.ROWS_IN_BLOCK + 1
    for extent in range(-(-blocks // BLOCKS_IN_EXTENT)):
        yield {
            "OWNER": table.owner, "SEGMENT_NAME": table.name, "SEGMENT_TYPE": "TABLE", "TABLESPACE_NAME": "USERS", "EXTENT_ID": extent,
            "FILE_ID": rowids.FILE, "RELATIVE_FNO": rowids.FILE, "BLOCK_ID": rowids.FIRST_BLOCK + extent * BLOCKS_IN_EXTENT,
            "BLOCKS": BLOCKS_IN_EXTENT, "BYTES": BLOCKS_IN_EXTENT * BLOCK,
        }  # fmt: skip


def _segments(session: Session, table: Table) -> Iterator[Row]:
    extents = list(_extents(session, table))
    yield {
        "OWNER": table.owner, "SEGMENT_NAME": table.name, "SEGMENT_TYPE": "TABLE", "BYTES": len(extents) * BLOCKS_IN_EXTENT * BLOCK,
        "BLOCKS": len(extents) * BLOCKS_IN_EXTENT, "EXTENTS": len(extents), "TABLESPACE_NAME": "USERS",
    }  # fmt: skip


def _users(session: Session) -> Iterator[Row]:
    for number, user in enumerate(session.engine.catalog.users.values()):
        yield {
            "USERNAME": user.name,
            "USER_ID": number,
            "CREATED": session.engine.catalog.facts.resetlogs_time,
            "COMMON": "YES" if user.common else "NO",
            "ORACLE_MAINTAINED": "Y" if user.name.startswith("SYS") else "N",
        }


def _sequences(session: Session) -> Iterator[Row]:
    for sequence in session.engine.catalog.sequences.values():
        if sequence.container == session.container:
            yield {
                "SEQUENCE_OWNER": sequence.owner,
                "SEQUENCE_NAME": sequence.name,
                "INCREMENT_BY": sequence.increment,
                "LAST_NUMBER": sequence.value,
            }


def _collections(session: Session) -> Iterator[Row]:
    yield {"OWNER": "SYS", "TYPE_NAME": "ODCINUMBERLIST", "COLL_TYPE": "VARYING ARRAY"}


def _family(name: str, columns: str, rows: RowsOf, owner: str = "OWNER") -> list[View]:
    """ALL_, USER_, DBA_ and CDB_ forms of a view whose rows belong to tables."""

    def view_of(prefix: str) -> Callable[[Session], Iterator[Row]]:
        def answer(session: Session) -> Iterator[Row]:
            for table in list(session.engine.catalog.tables.values()):
                everywhere = prefix == "CDB_" and session.container == session.database.root
                if table.container != session.container and not everywhere:
                    continue
                if (prefix == "USER_" and table.owner != session.schema) or (
                    prefix == "ALL_" and not session.privileges.sees(table)
                ):
                    continue
                for row in rows(session, table):
                    yield row | {"CON_ID": session.database.container_id(table.container)}

        return answer

    plain = " ".join(part for part in columns.split() if part != f"{owner}:T")
    return [
        view(f"ALL_{name}", columns, view_of("ALL_")),
        view(f"USER_{name}", plain, view_of("USER_")),
        view(f"DBA_{name}", columns, view_of("DBA_")),
        view(f"CDB_{name}", f"{columns} CON_ID:N", view_of("CDB_")),
    ]


COLUMN_COLUMNS = (
    "OWNER:T TABLE_NAME:T COLUMN_NAME:T DATA_TYPE:T DATA_TYPE_MOD:T DATA_TYPE_OWNER:T DATA_LENGTH:N DATA_PRECISION:N DATA_SCALE:N"
    " NULLABLE:T COLUMN_ID:N DEFAULT_LENGTH:N DATA_DEFAULT:T CHAR_LENGTH:N CHAR_USED:T CHARACTER_SET_NAME:T IDENTITY_COLUMN:T"
    " DEFAULT_ON_NULL:T"
)
CONSTRAINT_COLUMNS = (
    "OWNER:T CONSTRAINT_NAME:T CONSTRAINT_TYPE:T TABLE_NAME:T SEARCH_CONDITION:T R_OWNER:T R_CONSTRAINT_NAME:T STATUS:T"
    " VALIDATED:T GENERATED:T INDEX_OWNER:T INDEX_NAME:T"
)
FAMILIES: list[tuple[Any, ...]] = [
    ("TABLES", "OWNER:T TABLE_NAME:T TABLESPACE_NAME:T CLUSTER_NAME:T IOT_NAME:T STATUS:T NUM_ROWS:N BLOCKS:N TEMPORARY:T NESTED:T PARTITIONED:T IOT_TYPE:T SECONDARY:T DROPPED:T MONITORING:T COMPRESSION:T READ_ONLY:T", _table),
    ("TAB_COLUMNS", COLUMN_COLUMNS, _columns),
    ("TAB_COLS", f"{COLUMN_COLUMNS} HIDDEN_COLUMN:T VIRTUAL_COLUMN:T SEGMENT_COLUMN_ID:N INTERNAL_COLUMN_ID:N USER_GENERATED:T QUALIFIED_COL_NAME:T", _all_columns),
    ("CONSTRAINTS", CONSTRAINT_COLUMNS, _constraints),
    ("CONS_COLUMNS", "OWNER:T CONSTRAINT_NAME:T TABLE_NAME:T COLUMN_NAME:T POSITION:N", _constraint_columns),
    ("INDEXES", "OWNER:T INDEX_NAME:T INDEX_TYPE:T TABLE_OWNER:T TABLE_NAME:T TABLE_TYPE:T UNIQUENESS:T STATUS:T", _indexes),
    ("IND_COLUMNS", "INDEX_OWNER:T INDEX_NAME:T TABLE_OWNER:T TABLE_NAME:T COLUMN_NAME:T COLUMN_POSITION:N DESCEND:T", _index_columns, "INDEX_OWNER"),
    ("OBJECTS", "OWNER:T OBJECT_NAME:T SUBOBJECT_NAME:T OBJECT_ID:N DATA_OBJECT_ID:N OBJECT_TYPE:T CREATED:D LAST_DDL_TIME:D STATUS:T TEMPORARY:T", _objects),
    ("LOG_GROUPS", "OWNER:T LOG_GROUP_NAME:T TABLE_NAME:T LOG_GROUP_TYPE:T ALWAYS:T GENERATED:T", _log_groups),
    ("LOG_GROUP_COLUMNS", "OWNER:T LOG_GROUP_NAME:T TABLE_NAME:T COLUMN_NAME:T POSITION:N LOGGING_PROPERTY:T", _log_group_columns),
    ("TAB_COMMENTS", "OWNER:T TABLE_NAME:T TABLE_TYPE:T COMMENTS:T", _comments),
    ("COL_COMMENTS", "OWNER:T TABLE_NAME:T COLUMN_NAME:T COMMENTS:T", _columns),
    ("LOBS", "OWNER:T TABLE_NAME:T COLUMN_NAME:T SEGMENT_NAME:T IN_ROW:T SECUREFILE:T", _lobs),
    ("EXTENTS", "OWNER:T SEGMENT_NAME:T PARTITION_NAME:T SEGMENT_TYPE:T TABLESPACE_NAME:T EXTENT_ID:N FILE_ID:N BLOCK_ID:N BYTES:N BLOCKS:N RELATIVE_FNO:N", _extents),
    ("SEGMENTS", "OWNER:T SEGMENT_NAME:T SEGMENT_TYPE:T TABLESPACE_NAME:T BYTES:N BLOCKS:N EXTENTS:N", _segments),
]  # fmt: skip
ABSENT = {
    "MVIEWS": "OWNER:T MVIEW_NAME:T CONTAINER_NAME:T", "VIEWS": "OWNER:T VIEW_NAME:T TEXT:T", "NESTED_TABLES": "OWNER:T TABLE_NAME:T PARENT_TABLE_NAME:T",
    "EXTERNAL_TABLES": "OWNER:T TABLE_NAME:T TYPE_NAME:T", "TAB_PARTITIONS": "TABLE_OWNER:T TABLE_NAME:T PARTITION_NAME:T",
    "OBJECT_TABLES": "OWNER:T TABLE_NAME:T TABLE_TYPE:T", "XML_TABLES": "OWNER:T TABLE_NAME:T STORAGE_TYPE:T",
    "TYPE_ATTRS": "OWNER:T TYPE_NAME:T ATTR_NAME:T ATTR_TYPE_MOD:T ATTR_TYPE_OWNER:T ATTR_TYPE_NAME:T",
    "IND_EXPRESSIONS": "INDEX_OWNER:T INDEX_NAME:T TABLE_OWNER:T TABLE_NAME:T COLUMN_EXPRESSION:T COLUMN_POSITION:N",
}  # fmt: skip
"""What this database never has."""

VIEWS = [
    view("ALL_COLL_TYPES", "OWNER:T TYPE_NAME:T COLL_TYPE:T", _collections),
    *(one for family in FAMILIES for one in _family(*family)),
    *(view(f"{prefix}_{name}", columns, no_rows) for name, columns in ABSENT.items() for prefix in ("ALL", "USER", "DBA")),
    *(view(f"{prefix}_USERS", "USERNAME:T USER_ID:N CREATED:D COMMON:T ORACLE_MAINTAINED:T", _users) for prefix in ("ALL", "DBA")),
    *(view(f"{prefix}_SEQUENCES", "SEQUENCE_OWNER:T SEQUENCE_NAME:T INCREMENT_BY:N LAST_NUMBER:N", _sequences) for prefix in ("ALL", "DBA")),
]  # fmt: skip
