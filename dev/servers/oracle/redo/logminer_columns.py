"""The columns of V$LOGMNR_CONTENTS, and the words in them."""

from dev.servers.oracle.values.datatypes import DATE, NUMBER, RAW, DataType

TEXT = DataType("VARCHAR2", length=256)
LONG_TEXT = DataType("VARCHAR2", length=4000)
COLUMNS: tuple[tuple[str, DataType | None], ...] = (
    ("SCN", NUMBER), ("START_SCN", NUMBER), ("COMMIT_SCN", NUMBER), ("TIMESTAMP", DATE), ("START_TIMESTAMP", DATE),
    ("COMMIT_TIMESTAMP", DATE), ("XIDUSN", NUMBER), ("XIDSLT", NUMBER), ("XIDSQN", NUMBER), ("XID", DataType("RAW", length=8)),
    ("PXID", DataType("RAW", length=8)), ("TX_NAME", TEXT), ("OPERATION", TEXT), ("OPERATION_CODE", NUMBER), ("ROLLBACK", NUMBER),
    ("SEG_OWNER", TEXT), ("SEG_NAME", TEXT), ("TABLE_NAME", TEXT), ("SEG_TYPE", NUMBER), ("SEG_TYPE_NAME", TEXT),
    ("TABLE_SPACE", TEXT), ("ROW_ID", DataType("VARCHAR2", length=18)), ("USERNAME", TEXT), ("SESSION#", NUMBER),
    ("SERIAL#", NUMBER), ("SESSION_INFO", LONG_TEXT), ("THREAD#", NUMBER), ("SEQUENCE#", NUMBER), ("RBASQN", NUMBER),
    ("RBABLK", NUMBER), ("RBABYTE", NUMBER), ("DATA_OBJ#", NUMBER), ("DATA_OBJV#", NUMBER), ("DATA_OBJD#", NUMBER),
    ("SQL_REDO", LONG_TEXT), ("SQL_UNDO", LONG_TEXT), ("RS_ID", DataType("VARCHAR2", length=32)), ("SSN", NUMBER), ("CSF", NUMBER),
    ("INFO", TEXT), ("STATUS", NUMBER), ("REDO_VALUE", NUMBER), ("UNDO_VALUE", NUMBER), ("SAFE_RESUME_SCN", NUMBER),
    ("CSCN", NUMBER), ("OBJECT_ID", RAW), ("EDITION_NAME", TEXT), ("CLIENT_ID", TEXT), ("SRC_CON_NAME", TEXT),
    ("SRC_CON_ID", NUMBER), ("SRC_CON_UID", NUMBER), ("SRC_CON_DBID", NUMBER), ("SRC_CON_GUID", RAW), ("CON_ID", NUMBER),
)  # fmt: skip
NAMES = [name for name, _ in COLUMNS]
OPERATIONS = {
    0: "INTERNAL", 1: "INSERT", 2: "DELETE", 3: "UPDATE", 5: "DDL", 6: "START", 7: "COMMIT", 9: "SELECT_LOB_LOCATOR",
    10: "LOB_WRITE", 11: "LOB_TRIM", 27: "REPLICATION_MARKER", 29: "LOB_ERASE", 34: "MISSING_SCN", 36: "ROLLBACK",
    68: "XML DOC BEGIN", 70: "XML DOC WRITE", 71: "XML DOC END", 91: "EXTENDED STRING BEGIN",
    92: "EXTENDED STRING WRITE", 93: "EXTENDED STRING END", 255: "UNSUPPORTED",
}  # fmt: skip


def rs_id(sequence: int, record: int) -> str:
    """A record set id: log sequence, block and byte."""
    return f" 0x{sequence:06x}.{record // 8:08x}.{record % 8 * 64 + 16:04x} "
