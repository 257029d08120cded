"""Table and database options, and ``PARTITION BY``."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.sources.mysql.schema.ddl.charset_rules import charset_of
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.relational.sql_token_cursor import NUMBER, QUOTED, STRING, WORD

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
"""First words of a query."""


@dataclass(slots=True)
class MySqlTableOptions:
    """The content of table options.

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

    def infer_charset(self) -> MySqlTableOptions:
        """Fill in the character set that the collation implies."""
        if self.charset is None:
            self.charset = charset_of(self.collation)
        return self


def read_table_options(cursor: MySqlTokenCursor, *, commas: bool) -> MySqlTableOptions:
    """Options up to the first word that is none.

    :param commas: they may be separated by commas (``CREATE TABLE``); in ``ALTER TABLE`` a comma ends the action
    """
    options = MySqlTableOptions()
    while _option(cursor, options):
        options.count += 1
        if commas:
            cursor.accept(",")
    return options.infer_charset()


def read_charset(cursor: MySqlTokenCursor, options: MySqlTableOptions) -> bool:
    """``[DEFAULT] CHARACTER SET [=] x`` or ``[DEFAULT] COLLATE [=] x``, if that comes."""
    ahead = 1 if cursor.next_key == "DEFAULT" else 0
    word, following = cursor.peek(ahead).key, cursor.peek(ahead + 1).key
    if word in ("COLLATE", "CHARSET"):
        ahead += 1
    elif word in ("CHARACTER", "CHAR") and following == "SET":
        ahead += 2
    else:
        return False
    for _ in range(ahead):
        cursor.consume_token()
    cursor.accept("=")
    value = None if cursor.accept("DEFAULT") else cursor.word_or_text().lower()
    options.charset_said = True
    if word == "COLLATE":
        options.collation = value
    else:
        options.charset = value
    return True


def _option(cursor: MySqlTokenCursor, options: MySqlTableOptions) -> bool:
    if read_charset(cursor, options):
        return True
    token = cursor.next_token
    if token.kind not in (WORD, QUOTED):
        return False
    word = token.value.upper()
    quoted_option = token.kind == QUOTED and cursor.peek().key == "="
    if word in _VALUED and (token.key or quoted_option):
        cursor.consume_token()
        cursor.accept("=")
        value = _value(cursor)
        if word in ("ENGINE", "TYPE"):
            options.engine = value.upper()
        elif word == "COMMENT":
            options.comment = value
        return True
    if token.key == "SEQUENCE":
        cursor.consume_token()
        cursor.accept("=")
        options.sequence = _value(cursor).upper() in ("1", "YES", "ON")
        return True
    if cursor.accept("UNION"):
        cursor.accept("=")
        cursor.skip_group()
        return True
    if token.key in ("DATA", "INDEX") and cursor.peek().key == "DIRECTORY":
        cursor.consume_token()
        cursor.consume_token()
        cursor.accept("=")
        cursor.parse_string()
        return True
    if cursor.accept("WITH", "SYSTEM", "VERSIONING"):
        options.versioned = True
        return True
    # A server writes this for CREATE TABLE … SELECT: the rows follow as row events in the same transaction.
    return cursor.accept("START", "TRANSACTION")


def _value(cursor: MySqlTokenCursor) -> str:
    if cursor.next_token.kind not in (WORD, QUOTED, STRING, NUMBER):
        cursor.fail("a value expected")
    return cursor.consume_token().value


def _skip_history_partitions(cursor: MySqlTokenCursor) -> None:
    """``[INTERVAL n unit [STARTS time]] [AUTO] [LIMIT n] [PARTITIONS n]``; a list of partitions is left."""
    while cursor.next_key not in ("(", ",", "PARTITIONS", "SUBPARTITION") and not cursor.is_at_end:
        cursor.consume_token()


def skip_partitioning(cursor: MySqlTokenCursor) -> None:
    """Move past the clauses that follow ``PARTITION BY``."""
    while True:
        if cursor.next_key == "(" and cursor.peek().key not in QUERY_WORDS[:-1]:
            cursor.skip_group()
        elif cursor.next_key in _PARTITION_WORDS or cursor.next_token.kind == NUMBER:
            cursor.consume_token()
        elif cursor.accept("SYSTEM_TIME"):  # of system-versioned tables
            _skip_history_partitions(cursor)
        else:
            return
