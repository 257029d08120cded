"""``ALTER TABLE``."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import (
    Action,
    AddColumn,
    AddKey,
    AddPeriod,
    ChangeColumn,
    ConvertCharset,
    DropColumn,
    DropKey,
    PartitionToTable,
    RenameColumn,
    RenameIndex,
    SetDefault,
    SystemVersioning,
    TableCharset,
    TableComment,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.column_grammar import read_column
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.create_table import read_elements
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.default_clauses import set_default
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.key_clauses import read_key
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.table_options import (
    MySqlTableOptions,
    read_charset,
    read_table_options,
    skip_partitioning,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import AlterTable
from airflow_provider_cdc.sources.relational.ddl_statements import NoColumnChange, PartitionDataChange, RenameTo

_PARTITION_UPKEEP = ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "COALESCE", "REORGANIZE")


def read_alter_table(cursor: MySqlTokenCursor, *, ignore: bool) -> AlterTable:
    """Parse the statement after ``TABLE``."""
    if_exists = cursor.accept("IF", "EXISTS")
    table = cursor.parse_table_name()
    cursor.skip_wait()
    actions: list[Action] = []
    while not cursor.is_at_end:
        actions += _actions(cursor)
        # PARTITION BY and REMOVE PARTITIONING come last, without a comma.
        if cursor.next_key not in ("PARTITION", "REMOVE") and not cursor.accept(","):
            break
        if cursor.is_at_end:
            cursor.fail("an action expected")
    cursor.expect_end()
    _check_charsets(cursor, actions)
    return AlterTable(table, tuple(actions), if_exists, ignore)


def _check_charsets(cursor: MySqlTokenCursor, actions: list[Action]) -> None:
    """Reject definitions that leave the character set of a column to the server."""
    if len({a.charset for a in actions if isinstance(a, ConvertCharset | TableCharset)}) > 1:
        cursor.fail("two character sets for one table")
    if any(isinstance(a, ConvertCharset) for a in actions):
        # New columns are converted too, whatever their definitions say, and the servers do not agree on their sizes.
        new = [a.column for a in actions if isinstance(a, AddColumn | ChangeColumn)]
        if any(c.charset not in (None, "binary") or c.type.endswith(("text", "blob")) for c in new):
            cursor.fail("a new column is converted to another character set by the same statement")


def _actions(cursor: MySqlTokenCursor) -> list[Action]:
    """Parse the part between two commas; table options may stand there in a row."""
    read = _ACTIONS.get(cursor.next_key)
    if read is not None:
        mark = cursor.mark()
        cursor.consume_token()
        parsed = read(cursor)
        if parsed is not None:
            return parsed
        cursor.reset(mark)
    options = read_table_options(cursor, commas=False)
    if not options.count or options.sequence:
        cursor.fail("an action of ALTER TABLE expected")
    actions: list[Action] = []
    if options.charset_said:
        actions.append(TableCharset(options.charset, options.collation))
    if options.comment is not None:
        actions.append(TableComment(options.comment))
    if options.engine == "BLACKHOLE":  # takes the rows and keeps none
        actions.append(PartitionDataChange("ENGINE=BLACKHOLE"))
    return actions or [NoColumnChange("table options")]


# --- columns and keys -------------------------------------------------------------------------------------------------


def _add(cursor: MySqlTokenCursor) -> list[Action]:
    if cursor.next_key == "PARTITION":
        cursor.skip_rest()
        return [NoColumnChange("add partition")]
    if cursor.accept("SYSTEM", "VERSIONING"):
        return [SystemVersioning()]
    key = read_key(cursor)
    if key is not None:
        return [key]
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if cursor.next_key == "(":
        elements = read_elements(cursor)
        return [e if isinstance(e, AddKey | AddPeriod) else AddColumn(e, if_not_exists=if_not_exists) for e in elements]
    column = read_column(cursor)
    first, after = _place(cursor)
    return [AddColumn(column, first, after, if_not_exists)]


def _place(cursor: MySqlTokenCursor) -> tuple[bool, str | None]:
    if cursor.accept("FIRST"):
        return True, None
    return False, cursor.read_column_name() if cursor.accept("AFTER") else None


def _change(cursor: MySqlTokenCursor) -> list[Action]:
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    old = cursor.read_column_name()
    column = read_column(cursor)
    return [ChangeColumn(old, column, *_place(cursor), if_exists)]


def _modify(cursor: MySqlTokenCursor) -> list[Action]:
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    column = read_column(cursor)
    return [ChangeColumn(column.name, column, *_place(cursor), if_exists)]


def _alter(cursor: MySqlTokenCursor) -> list[Action]:
    if cursor.accept_any("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        cursor.read_name()
        cursor.accept("NOT")
        if not cursor.accept_any("VISIBLE", "INVISIBLE", "IGNORED"):
            cursor.fail("VISIBLE or INVISIBLE expected")
        return [NoColumnChange("alter index")]
    if cursor.accept_any("CHECK", "CONSTRAINT"):
        cursor.read_name()
        cursor.accept("NOT")
        cursor.expect("ENFORCED")
        return [NoColumnChange("alter constraint")]
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    column = cursor.read_column_name()
    if cursor.accept("DROP", "DEFAULT"):
        return [SetDefault(column, None, if_exists)]
    cursor.expect("SET")
    if cursor.accept_any("VISIBLE", "INVISIBLE"):
        return [NoColumnChange("column visibility")]
    cursor.expect("DEFAULT")
    return [SetDefault(column, set_default(cursor), if_exists)]


def _drop(cursor: MySqlTokenCursor) -> list[Action]:
    key, following = cursor.next_key, cursor.peek().key
    if cursor.accept("SYSTEM", "VERSIONING"):
        return [NoColumnChange("drop system versioning")]
    if (key, following) == ("PERIOD", "FOR"):
        cursor.consume_token()
        cursor.consume_token()
        cursor.accept("IF", "EXISTS")
        cursor.read_name()
        return [NoColumnChange("drop period")]
    if key == "PARTITION":
        return _partition_data(cursor, "drop partition")
    if cursor.accept("PRIMARY", "KEY"):
        return [DropKey("primary")]
    if cursor.accept_any("INDEX", "KEY", "CONSTRAINT"):
        cursor.accept("IF", "EXISTS")
        name = cursor.read_name()
        # DROP CONSTRAINT may mean a unique key; the primary key has the name PRIMARY for both words.
        return [DropKey("primary") if name.upper() == "PRIMARY" else DropKey("index", name)]
    if cursor.accept("FOREIGN", "KEY") or cursor.accept("CHECK"):
        cursor.accept("IF", "EXISTS")
        cursor.read_name()
        return [NoColumnChange("drop constraint")]
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.read_column_name()
    cursor.accept_any("RESTRICT", "CASCADE")
    return [DropColumn(name, if_exists)]


def _rename(cursor: MySqlTokenCursor) -> list[Action]:
    if cursor.accept("COLUMN"):
        if_exists = cursor.accept("IF", "EXISTS")
        old = cursor.read_column_name()
        cursor.expect("TO")
        return [RenameColumn(old, cursor.read_column_name(), if_exists)]
    if cursor.accept_any("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        old = cursor.read_name()
        cursor.expect("TO")
        return [RenameIndex("rename index", old, cursor.read_name())]
    cursor.accept_any("TO", "AS", "=")
    return [RenameTo(cursor.parse_table_name())]


# --- the whole table, its rows and partitions -------------------------------------------------------------------------


def _convert(cursor: MySqlTokenCursor) -> list[Action]:
    if cursor.accept("PARTITION"):
        cursor.read_name()
        cursor.expect("TO", "TABLE")
        table = cursor.parse_table_name()
        cursor.expect_end()
        return [PartitionToTable("convert partition to table", (table,))]
    if cursor.accept("TABLE"):
        table = cursor.parse_table_name()
        cursor.expect("TO", "PARTITION")
        cursor.skip_rest()
        return [PartitionDataChange("convert table to partition", (table,))]
    cursor.expect("TO")
    options = MySqlTableOptions()
    if cursor.next_key in ("COLLATE", "DEFAULT") or not read_charset(cursor, options):
        cursor.fail("CHARACTER SET expected")
    if cursor.next_key == "COLLATE":
        read_charset(cursor, options)
    return [ConvertCharset(options.infer_charset().charset, options.collation)]


def _exchange(cursor: MySqlTokenCursor) -> list[Action]:
    cursor.expect("PARTITION")
    cursor.read_name()
    cursor.expect("WITH", "TABLE")
    table = cursor.parse_table_name()
    if cursor.accept_any("WITH", "WITHOUT"):
        cursor.expect("VALIDATION")
    return [PartitionDataChange("exchange partition", (table,))]


def _truncate(cursor: MySqlTokenCursor) -> list[Action]:
    return _partition_data(cursor, "truncate partition")


def _partition_data(cursor: MySqlTokenCursor, change: str) -> list[Action]:
    cursor.expect("PARTITION")
    cursor.skip_rest()
    return [PartitionDataChange(change)]


def _tablespace(change: str) -> Callable[[MySqlTokenCursor], list[Action]]:
    def read(cursor: MySqlTokenCursor) -> list[Action]:
        if cursor.next_key == "PARTITION":
            return _partition_data(cursor, f"{change} partition tablespace")
        cursor.expect("TABLESPACE")
        return [PartitionDataChange(f"{change} tablespace")]

    return read


def _partition_upkeep(cursor: MySqlTokenCursor) -> list[Action] | None:
    if cursor.next_key != "PARTITION":
        return None
    cursor.skip_rest()
    return [NoColumnChange("partition upkeep")]


def _partition(cursor: MySqlTokenCursor) -> list[Action] | None:
    if not cursor.accept("BY"):
        return None
    skip_partitioning(cursor)
    return [NoColumnChange("partition by")]


def _order(cursor: MySqlTokenCursor) -> list[Action]:
    """``ORDER BY a, b DESC``: always the last action."""
    cursor.expect("BY")
    while True:
        cursor.read_column_name()
        cursor.accept_any("ASC", "DESC")
        if not cursor.accept(","):
            return [NoColumnChange("order by")]


def _words(*endings: tuple[str, ...]) -> Callable[[MySqlTokenCursor], list[Action] | None]:
    """Return the parser of an action of fixed words, given by the words that may follow the first one."""

    def read(cursor: MySqlTokenCursor) -> list[Action] | None:
        return [NoColumnChange("no change")] if any(cursor.accept(*ending) for ending in endings) else None

    return read


def _setting(cursor: MySqlTokenCursor) -> list[Action]:
    """``ALGORITHM = x``, ``LOCK = x``."""
    cursor.accept("=")
    cursor.read_name()
    return [NoColumnChange("algorithm or lock")]


_ACTIONS: dict[str, Callable[[MySqlTokenCursor], list[Action] | None]] = {
    "ADD": _add,
    "CHANGE": _change,
    "MODIFY": _modify,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "CONVERT": _convert,
    "EXCHANGE": _exchange,
    "TRUNCATE": _truncate,
    "DISCARD": _tablespace("discard"),
    "IMPORT": _tablespace("import"),
    **dict.fromkeys(_PARTITION_UPKEEP, _partition_upkeep),
    "PARTITION": _partition,
    "ORDER": _order,
    "ALGORITHM": _setting,
    "LOCK": _setting,
    "REMOVE": _words(("PARTITIONING",)),
    "UPGRADE": _words(("PARTITIONING",)),
    "ENABLE": _words(("KEYS",)),
    "DISABLE": _words(("KEYS",)),
    "FORCE": _words(()),
    "WITH": _words(("VALIDATION",)),
    "WITHOUT": _words(("VALIDATION",)),
    "SECONDARY_LOAD": _words(()),
    "SECONDARY_UNLOAD": _words(()),
}
"""First word → function that reads the action after that word; if it returns ``None``, this is a table option after all."""
