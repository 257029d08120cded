"""Options of the storage of a table: storage, partitions, compression, caching. A closed list of words.

None of them changes a column that a user has made: those that ``ROW ARCHIVAL`` adds are Oracle's own.
"""

from __future__ import annotations

from typing import Literal

from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.relational.sql_token_cursor import NUMBER, QUOTED, STRING, WORD

_WORDS = frozenset((
    "PCTFREE", "PCTUSED", "INITRANS", "MAXTRANS", "STORAGE", "TABLESPACE", "LOGGING", "NOLOGGING",
    "FILESYSTEM_LIKE_LOGGING", "SEGMENT", "CREATION", "IMMEDIATE", "DEFERRED", "COMPRESS", "NOCOMPRESS", "BASIC",
    "ADVANCED", "LOW", "HIGH", "MEDIUM", "FOR", "OLTP", "QUERY", "ARCHIVE", "DIRECT_LOAD", "OPERATIONS", "ALL",
    "ROW", "STORE", "COLUMN", "LEVEL", "LOCKING", "NO", "CACHE", "NOCACHE", "READS", "RESULT_CACHE", "MODE",
    "DEFAULT", "FORCE", "MANUAL", "PARALLEL", "NOPARALLEL", "MONITORING", "NOMONITORING", "ROWDEPENDENCIES",
    "NOROWDEPENDENCIES", "MOVEMENT", "FLASHBACK", "INMEMORY", "MEMCOMPRESS", "ARCHIVAL", "PRIORITY", "CRITICAL",
    "NONE", "DISTRIBUTE", "AUTO", "BY", "RANGE", "PARTITION", "SUBPARTITION", "DUPLICATE", "DML", "CAPACITY",
    "SERVICE", "LOB", "AS", "SECUREFILE", "BASICFILE", "KEEP_DUPLICATES", "DEDUPLICATE", "CHUNK", "RETENTION",
    "MAX", "MIN", "FREEPOOLS", "PCTVERSION", "IN", "VARRAY", "NESTED", "TABLE", "RETURN", "VALUE", "LOCATOR",
    "XMLTYPE", "OBJECT", "RELATIONAL", "BINARY", "XML", "CLOB", "ALLOW", "DISALLOW", "NONSCHEMA", "ANYSCHEMA",
    "NOT", "SUBSTITUTABLE", "AT", "LEVELS", "ON", "COMMIT", "DELETE", "PRESERVE", "ROWS", "DEFINITION",
    "ORGANIZATION", "HEAP", "INDEX", "EXTERNAL", "INCLUDING", "OVERFLOW", "PCTTHRESHOLD", "MAPPING", "NOMAPPING",
    "LIST", "HASH", "REFERENCE", "SYSTEM", "CONSISTENT", "AUTOMATIC", "INTERVAL", "PARTITIONS", "SUBPARTITIONS",
    "TEMPLATE", "PARTITIONSET", "READ", "ONLY", "WRITE", "INDEXING", "OFF", "GLOBAL", "LOCAL", "REVERSE", "SORT",
    "NOSORT", "ONLINE", "VISIBLE", "INVISIBLE", "USABLE", "UNUSABLE", "COLLATION", "ANNOTATIONS", "MEMOPTIMIZE",
    "REJECT", "LIMIT", "UNLIMITED", "CLUSTERING", "LINEAR", "INTERLEAVED", "ORDER", "YES", "LOAD", "DATA",
    "DISABLE", "ENABLE", "LOCK", "TRIGGERS", "LOGICAL", "REPLICATION", "ALLOCATE", "EXTENT", "DEALLOCATE", "UNUSED",
    "KEEP", "MINIMIZE", "NOMINIMIZE", "RECORDS_PER_BLOCK", "SHRINK", "SPACE", "COMPACT", "CASCADE", "K", "M", "G",
    "T", "CLUSTER", "EQUAL", "WITHOUT", "MATERIALIZED", "ZONEMAP", "WITH", "TEXT", "SPATIAL", "USAGE", "QUEUE",
))  # fmt: skip
_CREATE_WORDS = _WORDS | frozenset((
    "DROP", "UNTIL", "DAYS", "IDLE", "LOCKED", "AFTER", "INSERT", "HASHING", "USING", "VERSION", "ILM", "ADD",
    "POLICY", "GROUP", "OF", "MODIFICATION", "ACCESS", "DAY", "MONTH", "MONTHS", "YEAR", "YEARS", "TIER", "TO",
    "IDENTIFIER", "IS", "PRIMARY", "KEY", "GENERATED", "OIDINDEX",
))  # fmt: skip
"""Further words that may stand after the columns of CREATE TABLE: there no clause follows that adds or drops a column."""

_INDEX_WORDS = frozenset((
    "PCTFREE", "PCTUSED", "INITRANS", "MAXTRANS", "STORAGE", "TABLESPACE", "LOGGING", "NOLOGGING", "COMPRESS", "NOCOMPRESS",
    "ADVANCED", "LOW", "HIGH", "REVERSE", "SORT", "NOSORT", "ONLINE", "LOCAL", "GLOBAL", "PARTITION", "PARTITIONS", "BY", "RANGE",
    "HASH", "STORE", "IN", "COMPUTE", "STATISTICS", "PARALLEL", "NOPARALLEL", "FILESYSTEM_LIKE_LOGGING",
))  # fmt: skip
"""Of the index that keeps a key: the key's own words, which may follow, are not among them."""
_NAME_AFTER = frozenset(("TABLESPACE", "COLLATION", "VARRAY", "AS", "ARCHIVE", "CLUSTER", "POLICY", "SERVICE", "TABLE", "COLUMN", "OVERFLOW", "INCLUDING", "OIDINDEX", "SECUREFILE", "BASICFILE"))  # fmt: skip
_CONSTRAINTS = ("CONSTRAINT", "PRIMARY", "UNIQUE", "VALIDATE", "NOVALIDATE")


class SkippedOptions:
    """The results of skipping the options.

    :ivar count: how many words
    :ivar organization: as in :class:`.CreateTable`
    """

    def __init__(self) -> None:
        self.count = 0
        self.organization = "HEAP"


def skip_options(cursor: DdlCursor, statement: Literal["create", "alter", "index"]) -> SkippedOptions:
    """Move past the options that come next, and stop at the first word that is none."""
    skipped = SkippedOptions()
    words = {"create": _CREATE_WORDS, "alter": _WORDS, "index": _INDEX_WORDS}[statement]
    while _at_option(cursor, words):
        skipped.count += 1
        word = cursor.consume_token().key
        if word == "ORGANIZATION":
            skipped.organization = cursor.accept_any("HEAP", "INDEX", "EXTERNAL") or cursor.fail(
                "HEAP, INDEX or EXTERNAL expected"
            )
        _operands(cursor, word, words)
    return skipped


def _at_option(cursor: DdlCursor, words: frozenset[str]) -> bool:
    key = cursor.next_key
    if cursor.next_token.kind != WORD or key not in words:
        return False
    if key == "AS":  # the query of CREATE TABLE; STORE AS takes its own
        return False
    if key in ("ENABLE", "DISABLE"):
        return cursor.peek().key not in _CONSTRAINTS
    return not (key == "FOR" and cursor.peek().key == "EXCHANGE")


def _operands(cursor: DdlCursor, word: str, words: frozenset[str]) -> None:
    if word == "STORE" and cursor.accept("AS"):
        word = cursor.accept_any("SECUREFILE", "BASICFILE") or "AS"
    if word == "TABLESPACE":
        cursor.accept("SET")
    if word in _NAME_AFTER and cursor.at_name and (cursor.next_token.kind == QUOTED or cursor.next_key not in words):
        cursor.object_name()
    while True:
        if cursor.next_key == "(":
            cursor.skip_group()
        elif cursor.next_token.kind in (NUMBER, STRING):
            cursor.consume_token()
        else:
            return
