"""Table and database options, and ``PARTITION BY``."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.sources.mysql.schema.ddl.charsets import charset_of
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.relational.tokens import NUMBER, QUOTED, STRING, WORD

_VALUED = frozenset((
    "ENGINE", "TYPE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT", "COMPRESSION",
    "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID", "ENGINE_ATTRIBUTE",
    "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "IETF_QUOTES", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS",
    "MIN_ROWS", "NODEGROUP", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "PASSWORD",
    "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLESPACE",
    "TRANSACTIONAL", "AUTOEXTEND_SIZE",
))  # fmt: skip
"""Options with one value that change neither columns nor rows. A closed list: an engine's own options may do
anything.
"""

_PARTITION_WORDS = frozenset((
    "LINEAR", "HASH", "KEY", "ALGORITHM", "RANGE", "COLUMNS", "LIST", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS",
    "BY", "=",
))  # fmt: skip
QUERY_WORDS = ("SELECT", "WITH", "VALUES", "TABLE", "(")
"""What a query begins with."""


@dataclass(slots=True)
class Options:
    """What table options said.

    :param count: number of options read
    :param versioned: with MariaDB's system versioning
    :param sequence: it is a sequence of MariaDB
    :param charset_said: a character set or collation was among them; ``charset`` ``None`` is then ``DEFAULT``
    """

    count: int = 0
    charset_said: bool = False
    charset: str | None = None
    collation: str | None = None
    engine: str | None = None
    versioned: bool = False
    sequence: bool = False
    comment: str | None = None

    def finish(self) -> Options:
        """Fill in the character set that the collation tells."""
        if self.charset is None:
            self.charset = charset_of(self.collation)
        return self


def read_table_options(cursor: Cursor, *, commas: bool) -> Options:
    """Options up to the first word that is none.

    :param commas: they may be separated by commas (``CREATE TABLE``); in ``ALTER TABLE`` a comma ends the action
    """
    options = Options()
    while _option(cursor, options):
        options.count += 1
        if commas:
            cursor.accept(",")
    return options.finish()


def read_charset(cursor: Cursor, options: Options) -> bool:
    """``[DEFAULT] CHARACTER SET [=] x`` or ``[DEFAULT] COLLATE [=] x``, if that comes."""
    ahead = 1 if cursor.key == "DEFAULT" else 0
    word, following = cursor.peek(ahead).key, cursor.peek(ahead + 1).key
    if word in ("COLLATE", "CHARSET"):
        ahead += 1
    elif word in ("CHARACTER", "CHAR") and following == "SET":
        ahead += 2
    else:
        return False
    for _ in range(ahead):
        cursor.take()
    cursor.accept("=")
    value = None if cursor.accept("DEFAULT") else cursor.word_or_text().lower()
    options.charset_said = True
    if word == "COLLATE":
        options.collation = value
    else:
        options.charset = value
    return True


def _option(cursor: Cursor, options: Options) -> bool:
    if read_charset(cursor, options):
        return True
    token = cursor.token
    if token.kind not in (WORD, QUOTED):
        return False
    word = token.value.upper()
    quoted_option = token.kind == QUOTED and cursor.peek().key == "="
    if word in _VALUED and (token.key or quoted_option):
        cursor.take()
        cursor.accept("=")
        value = _value(cursor)
        if word in ("ENGINE", "TYPE"):
            options.engine = value.upper()
        elif word == "COMMENT":
            options.comment = value
        return True
    if token.key == "SEQUENCE":
        cursor.take()
        cursor.accept("=")
        options.sequence = _value(cursor).upper() in ("1", "YES", "ON")
        return True
    if cursor.accept("UNION"):
        cursor.accept("=")
        cursor.skip_group()
        return True
    if token.key in ("DATA", "INDEX") and cursor.peek().key == "DIRECTORY":
        cursor.take()
        cursor.take()
        cursor.accept("=")
        cursor.text()
        return True
    if cursor.accept("WITH", "SYSTEM", "VERSIONING"):
        options.versioned = True
        return True
    # What a server writes for CREATE TABLE … SELECT: the rows follow as row events in the same transaction.
    return cursor.accept("START", "TRANSACTION")


def _value(cursor: Cursor) -> str:
    if cursor.token.kind not in (WORD, QUOTED, STRING, NUMBER):
        cursor.fail("a value expected")
    return cursor.take().value


def _skip_history_partitions(cursor: Cursor) -> None:
    """``[INTERVAL n unit [STARTS time]] [AUTO] [LIMIT n] [PARTITIONS n]``; a list of partitions is left."""
    while cursor.key not in ("(", ",", "PARTITIONS", "SUBPARTITION") and not cursor.ended:
        cursor.take()


def skip_partitioning(cursor: Cursor) -> None:
    """Move past what follows ``PARTITION BY``."""
    while True:
        if cursor.key == "(" and cursor.peek().key not in QUERY_WORDS[:-1]:
            cursor.skip_group()
        elif cursor.key in _PARTITION_WORDS or cursor.token.kind == NUMBER:
            cursor.take()
        elif cursor.accept("SYSTEM_TIME"):  # of system-versioned tables
            _skip_history_partitions(cursor)
        else:
            return
