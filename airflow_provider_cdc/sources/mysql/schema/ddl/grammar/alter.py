"""``ALTER TABLE``."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_cdc.sources.mysql.schema.ddl.actions import (
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
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.attributes import read_column
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.create import read_elements
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.keys import read_key
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.literals import set_default
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.options import (
    Options,
    read_charset,
    read_table_options,
    skip_partitioning,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import AlterTable
from airflow_provider_cdc.sources.relational.ddl_statements import NoColumnChange, PartitionData, RenameTo

_PARTITION_UPKEEP = ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "COALESCE", "REORGANIZE")


def read_alter_table(cursor: Cursor, *, ignore: bool) -> AlterTable:
    """The statement after ``TABLE``."""
    if_exists = cursor.accept("IF", "EXISTS")
    table = cursor.table()
    cursor.skip_wait()
    actions: list[Action] = []
    while not cursor.ended:
        actions += _actions(cursor)
        # PARTITION BY and REMOVE PARTITIONING come last, without a comma.
        if cursor.key not in ("PARTITION", "REMOVE") and not cursor.accept(","):
            break
        if cursor.ended:
            cursor.fail("an action expected")
    cursor.finish()
    _check_charsets(cursor, actions)
    return AlterTable(table, tuple(actions), if_exists, ignore)


def _check_charsets(cursor: Cursor, actions: list[Action]) -> None:
    """Refuse what leaves the character set of a column to the server."""
    if len({a.charset for a in actions if isinstance(a, ConvertCharset | TableCharset)}) > 1:
        cursor.fail("two character sets for one table")
    if any(isinstance(a, ConvertCharset) for a in actions):
        # New columns are converted too, whatever their definitions say, and the servers do not agree on their sizes.
        new = [a.column for a in actions if isinstance(a, AddColumn | ChangeColumn)]
        if any(c.charset not in (None, "binary") or c.type.endswith(("text", "blob")) for c in new):
            cursor.fail("a new column is converted to another character set at once")


def _actions(cursor: Cursor) -> list[Action]:
    """What is between two commas; table options may stand there in a row."""
    read = _ACTIONS.get(cursor.key)
    if read is not None:
        mark = cursor.mark()
        cursor.take()
        found = read(cursor)
        if found is not None:
            return found
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
        actions.append(PartitionData("ENGINE=BLACKHOLE"))
    return actions or [NoColumnChange("table options")]


# --- columns and keys -------------------------------------------------------------------------------------------------


def _add(cursor: Cursor) -> list[Action]:
    if cursor.key == "PARTITION":
        cursor.skip_rest()
        return [NoColumnChange("add partition")]
    if cursor.accept("SYSTEM", "VERSIONING"):
        return [SystemVersioning()]
    key = read_key(cursor)
    if key is not None:
        return [key]
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if cursor.key == "(":
        elements = read_elements(cursor)
        return [e if isinstance(e, AddKey | AddPeriod) else AddColumn(e, if_not_exists=if_not_exists) for e in elements]
    column = read_column(cursor)
    first, after = _place(cursor)
    return [AddColumn(column, first, after, if_not_exists)]


def _place(cursor: Cursor) -> tuple[bool, str | None]:
    if cursor.accept("FIRST"):
        return True, None
    return False, cursor.column() if cursor.accept("AFTER") else None


def _change(cursor: Cursor) -> list[Action]:
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    old = cursor.column()
    column = read_column(cursor)
    return [ChangeColumn(old, column, *_place(cursor), if_exists)]


def _modify(cursor: Cursor) -> list[Action]:
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    column = read_column(cursor)
    return [ChangeColumn(column.name, column, *_place(cursor), if_exists)]


def _alter(cursor: Cursor) -> list[Action]:
    if cursor.accept_any("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        cursor.name()
        cursor.accept("NOT")
        if not cursor.accept_any("VISIBLE", "INVISIBLE", "IGNORED"):
            cursor.fail("VISIBLE or INVISIBLE expected")
        return [NoColumnChange("alter index")]
    if cursor.accept_any("CHECK", "CONSTRAINT"):
        cursor.name()
        cursor.accept("NOT")
        cursor.expect("ENFORCED")
        return [NoColumnChange("alter constraint")]
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    column = cursor.column()
    if cursor.accept("DROP", "DEFAULT"):
        return [SetDefault(column, None, if_exists)]
    cursor.expect("SET")
    if cursor.accept_any("VISIBLE", "INVISIBLE"):
        return [NoColumnChange("column visibility")]
    cursor.expect("DEFAULT")
    return [SetDefault(column, set_default(cursor), if_exists)]


def _drop(cursor: Cursor) -> list[Action]:
    key, following = cursor.key, cursor.peek().key
    if cursor.accept("SYSTEM", "VERSIONING"):
        return [NoColumnChange("drop system versioning")]
    if (key, following) == ("PERIOD", "FOR"):
        cursor.take()
        cursor.take()
        cursor.accept("IF", "EXISTS")
        cursor.name()
        return [NoColumnChange("drop period")]
    if key == "PARTITION":
        return _partition_data(cursor, "drop partition")
    if cursor.accept("PRIMARY", "KEY"):
        return [DropKey("primary")]
    if cursor.accept_any("INDEX", "KEY", "CONSTRAINT"):
        cursor.accept("IF", "EXISTS")
        name = cursor.name()
        # DROP CONSTRAINT may mean a unique key; the primary key has the name PRIMARY for both words.
        return [DropKey("primary") if name.upper() == "PRIMARY" else DropKey("index", name)]
    if cursor.accept("FOREIGN", "KEY") or cursor.accept("CHECK"):
        cursor.accept("IF", "EXISTS")
        cursor.name()
        return [NoColumnChange("drop constraint")]
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.column()
    cursor.accept_any("RESTRICT", "CASCADE")
    return [DropColumn(name, if_exists)]


def _rename(cursor: Cursor) -> list[Action]:
    if cursor.accept("COLUMN"):
        if_exists = cursor.accept("IF", "EXISTS")
        old = cursor.column()
        cursor.expect("TO")
        return [RenameColumn(old, cursor.column(), if_exists)]
    if cursor.accept_any("INDEX", "KEY"):
        cursor.accept("IF", "EXISTS")
        old = cursor.name()
        cursor.expect("TO")
        return [RenameIndex("rename index", old, cursor.name())]
    cursor.accept_any("TO", "AS", "=")
    return [RenameTo(cursor.table())]


# --- the whole table, its rows and partitions -------------------------------------------------------------------------


def _convert(cursor: Cursor) -> list[Action]:
    if cursor.accept("PARTITION"):
        cursor.name()
        cursor.expect("TO", "TABLE")
        table = cursor.table()
        cursor.finish()
        return [PartitionToTable("convert partition to table", (table,))]
    if cursor.accept("TABLE"):
        table = cursor.table()
        cursor.expect("TO", "PARTITION")
        cursor.skip_rest()
        return [PartitionData("convert table to partition", (table,))]
    cursor.expect("TO")
    options = Options()
    if cursor.key in ("COLLATE", "DEFAULT") or not read_charset(cursor, options):
        cursor.fail("CHARACTER SET expected")
    if cursor.key == "COLLATE":
        read_charset(cursor, options)
    return [ConvertCharset(options.finish().charset, options.collation)]


def _exchange(cursor: Cursor) -> list[Action]:
    cursor.expect("PARTITION")
    cursor.name()
    cursor.expect("WITH", "TABLE")
    table = cursor.table()
    if cursor.accept_any("WITH", "WITHOUT"):
        cursor.expect("VALIDATION")
    return [PartitionData("exchange partition", (table,))]


def _truncate(cursor: Cursor) -> list[Action]:
    return _partition_data(cursor, "truncate partition")


def _partition_data(cursor: Cursor, what: str) -> list[Action]:
    cursor.expect("PARTITION")
    cursor.skip_rest()
    return [PartitionData(what)]


def _tablespace(what: str) -> Callable[[Cursor], list[Action]]:
    def read(cursor: Cursor) -> list[Action]:
        if cursor.key == "PARTITION":
            return _partition_data(cursor, f"{what} partition tablespace")
        cursor.expect("TABLESPACE")
        return [PartitionData(f"{what} tablespace")]

    return read


def _partition_upkeep(cursor: Cursor) -> list[Action] | None:
    if cursor.key != "PARTITION":
        return None
    cursor.skip_rest()
    return [NoColumnChange("partition upkeep")]


def _partition(cursor: Cursor) -> list[Action] | None:
    if not cursor.accept("BY"):
        return None
    skip_partitioning(cursor)
    return [NoColumnChange("partition by")]


def _order(cursor: Cursor) -> list[Action]:
    """``ORDER BY a, b DESC``: always the last action."""
    cursor.expect("BY")
    while True:
        cursor.column()
        cursor.accept_any("ASC", "DESC")
        if not cursor.accept(","):
            return [NoColumnChange("order by")]


def _words(*endings: tuple[str, ...]) -> Callable[[Cursor], list[Action] | None]:
    """An action of fixed words, given by what may follow the first one."""

    def read(cursor: Cursor) -> list[Action] | None:
        return [NoColumnChange("no change")] if any(cursor.accept(*ending) for ending in endings) else None

    return read


def _setting(cursor: Cursor) -> list[Action]:
    """``ALGORITHM = x``, ``LOCK = x``."""
    cursor.accept("=")
    cursor.name()
    return [NoColumnChange("algorithm or lock")]


_ACTIONS: dict[str, Callable[[Cursor], list[Action] | None]] = {
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
"""First word → what reads the action after that word; ``None`` from there: it is a table option after all."""
