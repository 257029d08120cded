"""Rows that LogMiner cannot name, because its dictionary is of another time than they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.log_items import LogBlock, LogItem, Rollback, SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.sources.oracle.connect import connect, database_of
from airflow_provider_cdc.sources.oracle.metrics import LogMinerMetrics
from airflow_provider_cdc.sources.oracle.mining.live_catalog_lookups import CatalogLookups
from airflow_provider_cdc.sources.oracle.mining.logminer_query import BATCH
from airflow_provider_cdc.sources.oracle.mining.logminer_stream import LogMinerStream
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import NoLookups, StoredColumns
from airflow_provider_cdc.sources.oracle.source import OracleSource
from airflow_provider_cdc.sources.oracle.stream_counters import RowCounters
from airflow_provider_cdc.sources.oracle.transactions.row_processor import RowProcessor
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle.transactions.test_row_processor import ScriptedDdl, batches, row, schema_of

NAMED = {"hybrid", "redo_log_catalog"}
ALL_LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


class Known:
    """The structures that a consumer of the stream keeps; see :class:`airflow_provider_cdc.core.spi.source.CapturedTableSchemas`."""

    def __init__(self, schemas: dict[TableId, TableSchema], filters: Filters | None = None) -> None:
        self.tables, self._filters = dict(schemas), filters

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.tables.get(table)

    def is_captured(self, table: TableId) -> bool:
        return self._filters.is_table_captured(table) if self._filters else table in self.tables

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return list(self.tables)

    def apply(self, change: TableChange) -> None:
        self.tables.pop(change.previous_id or change.id, None)
        if change.table is not None:
            self.tables[change.id] = change.table


class StreamReading:
    """A stream that begins now, and is read later.

    :param noted: the dictionary is asked for the objects now; otherwise only when the stream is read
    """

    def __init__(self, server: Oracle, strategy: str, *, noted: bool = True, **properties: Any) -> None:
        self._server, self._noted = server, noted
        self.config = settings(server, log__mining__strategy=strategy, **properties)
        self.start = OraclePosition(server.scn(), server.scn())
        self.container = connect(self.config, container=True)
        self.dictionary = OracleCatalog(self.container, self.config)
        self.tables = Known(self.dictionary.read_table_schemas(), Filters(self.config))
        self._made = self._make() if noted else None

    def _make(self) -> LogMinerStream:
        with closing(connect(self.config)) as root:
            database = database_of(root)
        self._lookups = CatalogLookups(self.config)
        metrics = LogMinerMetrics(self.config)
        return LogMinerStream(self.config, database, self.start, None, self.tables, self._lookups, metrics)

    def items(self) -> Iterator[LogItem]:
        until = self._server.scn()
        stream = self._made or self._make()
        with closing(self.container), closing(self._lookups):
            items = stream.read_items()
            for item in items:
                yield item
                if isinstance(item, SchemaChange):
                    for change in item.changes:
                        self.tables.apply(change)
                assert not isinstance(item, Rollback)
                assert isinstance(item.position, OraclePosition)
                if item.position.read_scn >= until:
                    break
            items.close()  # type: ignore[attr-defined]

    def events(self) -> list[Any]:
        """All that the stream says, without what differs between two readings."""
        found: list[Any] = []
        for item in self.items():
            if isinstance(item, SchemaChange):
                found.append((item.ddl, [(c.type, str(c.id), c.table and c.table.column_names) for c in item.changes]))
            elif isinstance(item, LogBlock):
                rows: list[tuple[int, Any]] = []
                for block in item.rows:
                    before = block.before.to_pylist() if block.before is not None else [None] * len(block)
                    after = block.after.to_pylist() if block.after is not None else [None] * len(block)
                    missing = [
                        m[:, i].tolist() if m is not None else None
                        for i in range(len(block))
                        for m in (block.unavailable_before, block.unavailable_after)
                    ]
                    rows += [
                        (int(block.order[i]), ("rcud"[block.op[i]], str(block.table.id), before[i], after[i], missing[2 * i : 2 * i + 2]))
                        for i in range(len(block))
                    ]  # fmt: skip
                found += [event for _, event in sorted(rows, key=lambda r: r[0])]
        return found


def read_both_strategies(
    server: Oracle, *, noted: bool = True, **properties: Any
) -> tuple[StreamReading, StreamReading]:
    return tuple(StreamReading(server, s, noted=noted, **properties) for s in ("hybrid", "redo_log_catalog"))  # type: ignore[return-value]


def rows_of(events: list[Any]) -> list[Any]:
    return [e for e in events if e[0] in ("c", "u", "d")]


ALTERS = {
    "add": ("ALTER TABLE t ADD (extra NUMBER(4))", "INSERT INTO t VALUES (9, 'z', 2.5, 7)"),
    "drop": ("ALTER TABLE t DROP COLUMN note", "INSERT INTO t VALUES (9, 2.5)"),
    "drop_last": ("ALTER TABLE t DROP COLUMN price", "INSERT INTO t VALUES (9, 'z')"),
    "modify": ("ALTER TABLE t MODIFY (note VARCHAR2(200), price NUMBER(14,2))", "INSERT INTO t VALUES (9, 'z', 2.5)"),
    "rename": ("ALTER TABLE t RENAME COLUMN note TO remark", "INSERT INTO t (id, remark) VALUES (9, 'z')"),
}
CHANGES = (
    "INSERT INTO t VALUES (1, 'it''s', 12.34)",
    "INSERT INTO t VALUES (2, NULL, -0.5)",
    "UPDATE t SET note = 'b', price = NULL WHERE id = 1",
    "SAVEPOINT here",
    "INSERT INTO t VALUES (3, 'c', 1)",
    "UPDATE t SET price = 5 WHERE id = 2",
    "ROLLBACK TO here",
    "DELETE FROM t WHERE id = 2",
)


@pytest.fixture
def table_t(schema: Oracle) -> Oracle:
    schema.sql(
        "CREATE TABLE t (id NUMBER(9) PRIMARY KEY, note VARCHAR2(40), price NUMBER(10,2))", ALL_LOGGED.format("t")
    )
    return schema


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("name", list(ALTERS))
def test_changes_from_before_a_change_of_the_table_are_the_same_with_either_strategy(
    table_t: Oracle, name: str, noted: bool
) -> None:
    hybrid, catalog = read_both_strategies(table_t, noted=noted)
    statement, after = ALTERS[name]
    table_t.sql(*CHANGES)
    table_t.sql(statement)
    table_t.sql(after)
    expected = catalog.events()
    assert [e[0] for e in rows_of(expected)] == list("ccudc")
    assert rows_of(expected)[0][3] == {"ID": 1, "NOTE": "it's", "PRICE": Decimal("12.34")}
    assert hybrid.events() == expected


def test_many_changes_of_a_table_one_after_the_other(table_t: Oracle) -> None:
    hybrid, catalog = read_both_strategies(table_t)
    table_t.sql(*CHANGES)
    for i in range(4):
        table_t.sql(
            f"ALTER TABLE t ADD (c{i} VARCHAR2(10))", f"INSERT INTO t (id, note, c{i}) VALUES ({20 + i}, 'n', 'v{i}')"
        )
    table_t.sql("ALTER TABLE t DROP (c0, c2)", "UPDATE t SET c3 = 'w', price = 3")
    table_t.sql("ALTER TABLE t DROP COLUMN note", "DELETE FROM t WHERE id > 20")
    expected = catalog.events()
    assert len(rows_of(expected)) == 4 + 4 + 5 + 3
    assert hybrid.events() == expected


def test_every_type_comes_back_from_its_stored_form(schema: Oracle) -> None:
    columns = {
        "C1": ("CHAR(4)", "'ab'"), "C2": ("VARCHAR2(40 CHAR)", "'Zoë €'"), "C3": ("NVARCHAR2(10)", "N'Zoë €'"),
        "C4": ("NCHAR(3)", "N'x'"), "C5": ("NUMBER", "-12345678901234567890.0123"), "C6": ("NUMBER(5)", "100"),
        "C7": ("NUMBER(12,2)", "-0.01"), "C8": ("FLOAT(63)", "1.25"), "C9": ("BINARY_FLOAT", "1.1"),
        "C10": ("BINARY_DOUBLE", "-2.5"), "C11": ("DATE", "DATE '1987-02-03'"), "C12": ("TIMESTAMP(3)", "TIMESTAMP '2024-02-29 01:02:03.456'"),
        "C13": ("TIMESTAMP(9)", "TIMESTAMP '2024-02-29 01:02:03'"),
        "C14": ("TIMESTAMP(6) WITH TIME ZONE", "TIMESTAMP '2024-02-29 01:02:03.5 -03:30'"),
        "C15": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP '2024-02-29 01:02:03.5 +02:00'"),
        "C16": ("INTERVAL YEAR(3) TO MONTH", "INTERVAL '-3-6' YEAR TO MONTH"),
        "C17": ("INTERVAL DAY(3) TO SECOND(6)", "INTERVAL '-4 05:12:10.222' DAY TO SECOND"), "C18": ("RAW(8)", "HEXTORAW('00FF10')"),
        "C19": ("ROWID", "CHARTOROWID('AAAR0pAAHAAAACAAAA')"), "C20": ("NUMBER(10,-2)", "1200"), "C21": ("CLOB", "'long'"),
    }  # fmt: skip
    schema.sql(f"CREATE TABLE t (id NUMBER(9) PRIMARY KEY, {', '.join(f'{n} {t}' for n, (t, _) in columns.items())})")
    schema.sql(ALL_LOGGED.format("t"))
    hybrid, catalog = read_both_strategies(schema)
    schema.sql(f"INSERT INTO t VALUES (1, {', '.join(value for _, value in columns.values())})")
    schema.sql("INSERT INTO t (id) VALUES (2)", "UPDATE t SET c6 = 7 WHERE id = 1", "DELETE FROM t WHERE id = 1")
    schema.sql("ALTER TABLE t ADD (more NUMBER(1))")
    expected = catalog.events()
    assert [e[0] for e in rows_of(expected)] == list("cucud")  # the first update brings the LOB
    assert hybrid.events() == expected


@pytest.mark.parametrize(
    "statement", ["DROP TABLE t PURGE", "DROP TABLE t", "ALTER TABLE t RENAME TO t2", "RENAME t TO u"]
)
def test_changes_of_a_table_that_has_gone_since_the_stream_began(table_t: Oracle, statement: str) -> None:
    hybrid, catalog = read_both_strategies(table_t, table__include__list=r"APP\.T.*")
    table_t.sql(*CHANGES)
    table_t.sql(statement)
    expected = catalog.events()
    assert [e[0] for e in rows_of(expected)] == list("ccud")
    assert hybrid.events() == expected


@pytest.mark.parametrize("strategy", ["hybrid", "online_catalog"])
@pytest.mark.parametrize("statement", ["DROP TABLE t PURGE", "ALTER TABLE t RENAME TO t2"])
def test_changes_that_may_be_of_a_table_that_had_gone_when_the_stream_began_are_an_error(
    table_t: Oracle, strategy: str, statement: str
) -> None:
    reading = StreamReading(table_t, strategy, noted=False)
    table_t.sql(*CHANGES)
    table_t.sql(statement)
    with pytest.raises(SchemaConflict, match=r"may belong to") as e:
        reading.events()
    assert "redo_log_catalog" in str(e.value)


@pytest.mark.parametrize("name", list(ALTERS))
def test_the_online_catalog_alone_is_an_error(table_t: Oracle, name: str) -> None:
    reading = StreamReading(table_t, "online_catalog")
    table_t.sql(*CHANGES)
    table_t.sql(ALTERS[name][0])
    with pytest.raises(SchemaConflict, match=r"APP\.T is older than") as e:
        reading.events()
    assert "log.mining.strategy=hybrid or redo_log_catalog" in str(e.value)
    assert re.search(r"SCN \d+", str(e.value))


def test_the_source_asks_its_dictionary(table_t: Oracle) -> None:
    config_ = settings(table_t, log__mining__strategy="hybrid")
    with closing(connect(config_, container=True)) as container:
        tables = Known(OracleCatalog(container, config_).read_table_schemas())
    with closing(OracleSource(config_)) as source:
        start = source.current_position()
        table_t.sql("INSERT INTO t VALUES (1, 'a', 2.5)")
        table_t.sql("ALTER TABLE t ADD (more NUMBER(1))")
        items = []
        for item in source.stream_log(start, tables, until=source.current_position()):
            items.append(item)
            for change in item.changes if isinstance(item, SchemaChange) else []:
                tables.apply(change)
    assert first_row(items) == ("T", {"ID": 1, "NOTE": "a", "PRICE": Decimal("2.50")})


@pytest.mark.parametrize("strategy", ["hybrid", "online_catalog"])
def test_tables_that_are_not_captured_and_changes_that_were_rolled_back_do_no_harm(
    table_t: Oracle, strategy: str
) -> None:
    table_t.sql("CREATE TABLE x (id NUMBER(9), note VARCHAR2(9))")
    reading = StreamReading(table_t, strategy, table__include__list=r"APP\.T")
    table_t.sql("INSERT INTO t VALUES (1, 'a', 1)", "ROLLBACK")
    table_t.sql("INSERT INTO x VALUES (1, 'a')")
    table_t.sql("ALTER TABLE x ADD (more NUMBER(1))", "INSERT INTO x VALUES (2, 'b', 1)")
    table_t.sql("DROP TABLE x PURGE")
    table_t.sql("ALTER TABLE t ADD (more NUMBER(1))")
    table_t.sql("INSERT INTO t VALUES (2, 'b', 2, 2)")
    assert [e[3]["ID"] for e in rows_of(reading.events())] == [2]


def test_a_table_with_an_unused_column_is_an_error(table_t: Oracle) -> None:
    table_t.sql("ALTER TABLE t SET UNUSED (note)")
    reading = StreamReading(table_t, "hybrid")
    table_t.sql("INSERT INTO t VALUES (1, 2.5)")
    table_t.sql("ALTER TABLE t ADD (more NUMBER(1))")
    with pytest.raises(SchemaConflict, match="hidden, unused or invisible"):
        reading.events()


# rows made by hand: what no test server can be brought to do


class CountedLookups(NoLookups):
    """A dictionary of now, and of then where it can be asked."""

    def __init__(self, objects: dict[int, TableId], then: dict[int, TableId] | None = None) -> None:
        self._objects, self._then = objects, then
        self.plain = True

    def read_object_numbers(self, tables: Iterable[TableId]) -> dict[int, TableId]:
        named = set(tables)
        return {number: table for number, table in self._objects.items() if table in named}

    def table_of_object(self, number: int) -> TableId | None:
        return self._objects.get(number)

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        return self._then is not None, (self._then or {}).get(number)

    def read_stored_columns(self, table: TableId) -> StoredColumns | None:
        return StoredColumns(frozenset({"ID", "V", "NOTE"}), self.plain)


def id_(name: str) -> TableId:
    return TableId(namespace="APP", name=name, catalog="PDB")


MISMATCH = {"status": 2, "info": "Dictionary Version Mismatch"}


def process_items(
    lookups: NoLookups, *rows: dict[str, Any], ddl: Any = None, start: OraclePosition | None = None
) -> list[LogItem]:
    settings_ = config(**{"log.mining.strategy": "hybrid", "database.pdb.name": "PDB"})
    tables = Known({s.id: s for s in (schema_of("T1", settings_), schema_of("T2", settings_))})
    schemas = ScriptedDdl(settings_, tables, lookups, ddl)
    t = RowProcessor(settings_, start or OraclePosition(0, 0), tables, lookups, schemas, RowCounters())
    items: list[LogItem] = []
    for batch in batches(list(rows), iter([99])):
        for item in t.process(batch):
            items.append(item)
            if isinstance(item, SchemaChange):
                for change in item.changes:
                    tables.apply(change)
    items.append(t.advance_position(99))
    return items


def insert(
    scn: int, columns: str = '"COL 1","COL 2","COL 3"', values: str = "c102,c103,61", **more: Any
) -> dict[str, Any]:
    texts = ",".join("NULL" if v == "NULL" else f"HEXTORAW('{v}')" for v in values.split(","))
    name = more.pop("name", "T1")
    owner = more.get("owner", "APP")
    sql = f'insert into "{owner}"."{name}"({columns}) values ({texts});'
    return row(scn, 1, 5, sql, name, row_id="A", **{"object": 71, **MISMATCH, **more})


def commit(scn: int) -> dict[str, Any]:
    return row(scn, 7, 5)


def first_row(items: list[LogItem]) -> tuple[str, Any]:
    block = next(i for i in items if isinstance(i, LogBlock))
    assert block.rows[0].after is not None
    return block.rows[0].table.id.name, block.rows[0].after.to_pylist()[0]


def test_a_row_is_of_the_table_that_its_object_was_then() -> None:
    """T1 and T2 have changed places since."""
    now, then = {71: id_("T2"), 72: id_("T1")}, {71: id_("T1"), 72: id_("T2")}
    assert first_row(process_items(CountedLookups(now, then), insert(10, name="T2"), commit(11))) == (
        "T1",
        {"ID": 1, "V": 2, "NOTE": "a"},
    )
    unnamed = insert(10, name="OBJ# 71", owner="UNKNOWN")
    assert first_row(process_items(CountedLookups({}, then), unnamed, commit(11)))[0] == "T1"
    in_bin = insert(10, name="BIN$abc==$0")
    assert first_row(process_items(CountedLookups({}, then), in_bin, commit(11)))[0] == "T1"


RENAMED = TableChange(type="ALTER", id=id_("T2"), previous_id=id_("T1"), table=schema_of("T2", config()), exact=False)


@pytest.mark.parametrize("number", [71, None])
def test_a_name_that_turns_out_to_be_of_later_is_an_error(number: int | None) -> None:
    rename = row(12, 5, 6, "ALTER TABLE t1 RENAME TO t2", "T1", object=number)
    with pytest.raises(SchemaConflict, match=r"T1 was renamed, and earlier changes"):
        process_items(
            CountedLookups({71: id_("T2")}), insert(10, name="T2"), commit(11), rename, ddl=lambda *_: ([RENAMED], [])
        )


def test_changes_that_were_passed_over_and_turn_out_to_be_of_a_captured_table_are_an_error() -> None:
    """A new T1 has taken the place of the old one, which has a name now that is not captured."""
    now = {71: id_("OLD"), 72: id_("T2"), 73: id_("T1")}
    rename = row(12, 5, 6, "ALTER TABLE t1 RENAME TO old", "T1", object=71)
    gone = TableChange(type="DROP", id=id_("T1"))
    with pytest.raises(SchemaConflict, match=r"object 71 were treated as changes of APP\.OLD") as e:
        process_items(CountedLookups(now), insert(10, name="OLD"), commit(11), rename, ddl=lambda *_: ([gone], []))
    assert "snapshot APP.T1 and APP.OLD again" in str(e.value)


def test_changes_taken_for_those_of_a_table_that_has_the_name_now_are_an_error() -> None:
    """Object 73 is called T1 now; until here that was object 71."""
    now = {71: id_("OLD"), 72: id_("T2"), 73: id_("T1")}
    rename = row(12, 5, 6, "ALTER TABLE t1 RENAME TO old", "T1", object=71)
    gone = TableChange(type="DROP", id=id_("T1"))
    with pytest.raises(SchemaConflict, match=r"object 73 were treated as changes of APP\.T1"):
        process_items(
            CountedLookups(now), insert(10, name="T1", object=73), commit(11), rename, ddl=lambda *_: ([gone], [])
        )


def test_partitions_are_objects_of_their_own() -> None:
    now = {71: id_("T1"), 81: id_("T1"), 72: id_("T2")}
    altered = TableChange(type="ALTER", id=id_("T1"), table=schema_of("T1", config()))
    alter = row(12, 5, 6, "ALTER TABLE t1 ADD (more NUMBER)", "T1", object=71)
    items = process_items(CountedLookups(now), insert(10, object=81), commit(11), alter, ddl=lambda *_: ([altered], []))
    assert first_row(items)[0] == "T1"


def test_an_object_that_is_no_captured_table_any_more_is_not_another_one_of_its_name() -> None:
    gone = TableChange(type="DROP", id=id_("T1"))
    named = row(
        9, 1, 5, """insert into "APP"."T1"("ID","V","NOTE") values ('7','2','x');""", "T1", row_id="B", object=71
    )
    rename = row(11, 5, 6, "ALTER TABLE t1 RENAME TO old", "T1", object=71)
    rows = [named, commit(10), rename, insert(12, name="T1"), commit(13)]
    now = {71: id_("T1"), 72: id_("T2")}
    blocks = [
        i for i in process_items(CountedLookups(now), *rows, ddl=lambda *_: ([gone], [])) if isinstance(i, LogBlock)
    ]
    assert sum(b.row_count for b in blocks) == 1


def test_names_from_the_log_precede_present_names() -> None:
    named = row(
        9, 1, 5, """insert into "APP"."T1"("ID","V","NOTE") values ('7','2','x');""", "T1", row_id="B", object=71
    )
    items = process_items(CountedLookups({71: id_("T2"), 72: id_("T1")}), named, insert(10, name="T2"), commit(11))
    (block,) = (i for i in items if isinstance(i, LogBlock))
    assert [r.table.id.name for r in block.rows] == ["T1"]
    assert block.rows[0].after is not None
    assert [v["ID"] for v in block.rows[0].after.to_pylist()] == [7, 1]


def test_an_unknown_object_is_passed_over_only_where_no_captured_table_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = insert(10, name="OBJ# 71", owner="UNKNOWN")
    here = {1: id_("T1"), 2: id_("T2")}
    again = insert(10, name="OBJ# 71", owner="UNKNOWN") | {"ssn": 1}
    items = process_items(CountedLookups(here), unknown, again, commit(11))
    assert not any(isinstance(i, LogBlock) and i.rows for i in items)
    assert caplog.text.count("are skipped") == 1
    with pytest.raises(SchemaConflict, match=r"may belong to APP\.T2"):
        process_items(CountedLookups({1: id_("T1")}), unknown, commit(11))
    process_items(CountedLookups({1: id_("T1")}), unknown, row(11, 36, 5))  # it was rolled back


@pytest.mark.parametrize(
    ("columns", "values", "why"),
    [
        ('"COL 1","COL 2","COL 3","COL 4"', "c102,c103,61,62", "had 3"),
        ('"COL 1","COL 3"', "c102,61", "columns 1, 3"),
        ('"COL 1","COL 2"', "c102,NULL", "columns 1, 2"),
        ('"COL 1","COL 2","COL 3"', "61,c103,61", "does not fit ID NUMBER"),
        ('"COL 1","COL 2","COL 3"', "c102,c10333,61", "does not fit V NUMBER"),
        ('"COL 1","COL 2","COL 3"', "c102,c103,fffe", "does not fit NOTE"),
        ('"COL 1","V","COL 3"', "c102,c103,61", "column V beside"),
    ],
)
def test_a_row_that_does_not_fit_the_structure_is_an_error(columns: str, values: str, why: str) -> None:
    with pytest.raises(SchemaConflict, match=why) as e:
        process_items(CountedLookups({71: id_("T1")}), insert(10, columns, values), commit(11))
    assert "SCN 10" in str(e.value)
    assert "redo_log_catalog" in str(e.value)


def test_nulls_at_the_end_of_a_new_row_may_be_missing() -> None:
    made = insert(10, '"COL 1","COL 2"', "c102,c103")
    assert first_row(process_items(CountedLookups({71: id_("T1")}), made, commit(11)))[1] == {
        "ID": 1,
        "V": 2,
        "NOTE": None,
    }


def test_hidden_columns_and_pieces_of_long_values_are_errors() -> None:
    lookups = CountedLookups({71: id_("T1")})
    lookups.plain = False
    with pytest.raises(SchemaConflict, match="hidden, unused or invisible"):
        process_items(lookups, insert(10), commit(11))
    piece = 'DECLARE \n loc_c CLOB; \nBEGIN\n select "COL 3" into loc_c from "APP"."T1" where "COL 1" = HEXTORAW(\'c102\') for update;\n'
    with pytest.raises(SchemaConflict):
        process_items(CountedLookups({71: id_("T1")}), row(10, 9, 5, piece, "T1", object=71, **MISMATCH), commit(11))


def test_what_was_captured_before_may_be_unreadable_now() -> None:
    made = insert(10, name="OBJ# 71", owner="UNKNOWN")
    assert not any(
        isinstance(i, LogBlock)
        for i in process_items(CountedLookups({}), made, commit(11), start=OraclePosition(10, 50))
    )


def test_the_columns_of_a_batch_are_those_of_the_session() -> None:
    assert set(row(1, 1, 1)) == set(BATCH.names)
