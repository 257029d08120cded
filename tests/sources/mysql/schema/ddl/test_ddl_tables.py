"""CREATE TABLE and ALTER TABLE, statement by statement."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.sources.mysql.schema.ddl import (
    Action,
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    ColumnDef,
    ConvertCharset,
    CreateTable,
    DropColumn,
    DropKey,
    MySqlColumnDefault,
    NoColumnChange,
    PartitionDataChange,
    PartitionToTable,
    QualifiedName,
    RenameColumn,
    RenameIndex,
    RenameTo,
    SetDefault,
    TableCharset,
    TableComment,
    UnknownStatement,
    parse_statements,
    tables_of,
)

T = QualifiedName(None, "t")
A, B = ColumnDef("a", "int"), ColumnDef("b", "int")


def create(columns: tuple[ColumnDef, ...] = (A,), table: QualifiedName = T, **fields: Any) -> CreateTable:
    return CreateTable(table, columns, **fields)


def vc(name: str, length: int, **fields: Any) -> ColumnDef:
    return ColumnDef(name, "varchar", length, **fields)


CREATES: list[tuple[str, CreateTable]] = [
    ("CREATE TABLE t (a INT)", create()),
    ("create table`t`(`a`int)", create()),
    ("CREATE TABLE t (a INT);", create()),
    ("CREATE TEMPORARY TABLE t (a INT)", create(temporary=True)),
    ("CREATE TABLE IF NOT EXISTS t (a INT)", create(if_not_exists=True)),
    ("CREATE OR REPLACE TABLE t (a INT)", create(or_replace=True)),
    ("CREATE OR REPLACE TEMPORARY TABLE t (a INT)", create(or_replace=True, temporary=True)),
    ("/*!50003 CREATE*/ /*!50003 TABLE*/ t (a INT)", create()),
    ("CREATE /*M!100100 OR REPLACE */ TABLE t (a INT)", create(or_replace=True)),
    ("/* app:web */ CREATE TABLE t -- new\n(a INT # first\n)", create()),
    ("CREATE TABLE shop.t (a INT)", create(table=QualifiedName("shop", "t"))),
    ("CREATE TABLE `shop`.`t` (a INT)", create(table=QualifiedName("shop", "t"))),
    ("CREATE TABLE shop . t (a INT)", create(table=QualifiedName("shop", "t"))),
    ("CREATE TABLE .t (a INT)", create()),
    ("CREATE TABLE `my``shop`.`or ders` (a INT)", create(table=QualifiedName("my`shop", "or ders"))),
    ("CREATE TABLE größe.täg (a INT)", create(table=QualifiedName("größe", "täg"))),
    ("CREATE TABLE 1a.2e5 (a INT)", create(table=QualifiedName("1a", "2e5"))),
    ("CREATE TABLE shop.table (a INT)", create(table=QualifiedName("shop", "table"))),
    ("CREATE TABLE shop.1e5 (a INT)", create(table=QualifiedName("shop", "1e5"))),
    ("CREATE TABLE t (t.a INT, shop.t.b INT)", create((A, B))),
    # names that are words of the grammar
    (
        "CREATE TABLE t (comment INT, first INT, `key` INT, vector INT, period INT, status ENUM('x'))",
        create(
            (
                *(ColumnDef(n, "int") for n in ("comment", "first", "key", "vector", "period")),
                ColumnDef("status", "enum", values=("x",)),
            )
        ),
    ),
    ("CREATE TABLE t (vector VARCHAR(10), date DATE)", create((vc("vector", 10), ColumnDef("date", "date")))),
    # keys
    (
        "CREATE TABLE t (a INT PRIMARY KEY)",
        create((ColumnDef("a", "int", nullable=False, primary=True),), primary_key=("a",)),
    ),
    ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (b, a))", create((A, B), primary_key=("b", "a"))),
    ("CREATE TABLE t (a INT, PRIMARY KEY USING BTREE (a DESC))", create(primary_key=("a",))),
    ("CREATE TABLE t (a INT, PRIMARY KEY `x` (a) USING HASH COMMENT 'pk')", create(primary_key=("a",))),
    ("CREATE TABLE t (a INT, CONSTRAINT pk PRIMARY KEY (a))", create(primary_key=("a",))),
    ("CREATE TABLE t (a INT, CONSTRAINT PRIMARY KEY (a))", create(primary_key=("a",))),
    ("CREATE TABLE t (a VARCHAR(9), PRIMARY KEY (a(3)))", create((vc("a", 9),), primary_key=("a",))),
    (
        "CREATE TABLE t (a INT UNIQUE, b INT UNIQUE KEY, UNIQUE (a, b))",
        create(
            (ColumnDef("a", "int", unique=True), ColumnDef("b", "int", unique=True)),
            unique_keys=(("a",), ("b",), ("a", "b")),
            unique_key_names=(None, None, None),
        ),
    ),
    (
        "CREATE TABLE t (a INT, b INT, UNIQUE KEY u1 (a), CONSTRAINT c1 UNIQUE (b), CONSTRAINT x UNIQUE KEY u2 (a,b))",
        create((A, B), unique_keys=(("a",), ("b",), ("a", "b")), unique_key_names=("u1", "c1", "u2")),
    ),
    (
        "CREATE TABLE t (a INT, UNIQUE INDEX IF NOT EXISTS u USING HASH (a))",
        create(unique_keys=(("a",),), unique_key_names=("u",)),
    ),
    ("CREATE TABLE t (a VARCHAR(9), UNIQUE (a(3)))", create((vc("a", 9),))),
    ("CREATE TABLE t (a INT, b INT, UNIQUE (a, (b + 1)))", create((A, B))),
    ("CREATE TABLE t (a INT, UNIQUE ((lower(concat(a, ')')))))", create()),
    (
        "CREATE TABLE t (a SERIAL)",
        create(
            (ColumnDef("a", "bigint", unsigned=True, nullable=False, auto_increment=True, unique=True),),
            unique_keys=(("a",),),
            unique_key_names=(None,),
        ),
    ),
    # what is no key of rows
    (
        "CREATE TABLE t (a INT, INDEX (a), KEY k (a DESC) USING BTREE, FULLTEXT KEY f (a) WITH PARSER ngram,"
        " SPATIAL INDEX s (a), FOREIGN KEY fk (a) REFERENCES p (id) ON DELETE CASCADE, CHECK (a > 0),"
        " CONSTRAINT c CHECK ((a) IN (1,2)) NOT ENFORCED, CONSTRAINT FOREIGN KEY (a) REFERENCES p (id),"
        " VECTOR INDEX (a) M=8 DISTANCE=cosine, VECTOR v (a), VECTOR (a), INDEX ((a+1)), KEY k2 (a) /*! INVISIBLE */)",
        create(),
    ),
    # options
    ("CREATE TABLE t (a INT) DEFAULT CHARSET=utf8mb4", create(charset="utf8mb4")),
    (
        "CREATE TABLE t (a INT) CHARACTER SET latin1 COLLATE latin1_bin",
        create(charset="latin1", collation="latin1_bin"),
    ),
    ("CREATE TABLE t (a INT) DEFAULT COLLATE = 'utf8mb4_bin'", create(charset="utf8mb4", collation="utf8mb4_bin")),
    ("CREATE TABLE t (a INT) CHAR SET Latin1", create(charset="latin1")),
    ("CREATE TABLE t (a INT) CHARSET=DEFAULT", create()),
    (
        "CREATE TABLE t (a INT) CHARSET utf8mb4 COLLATE uca1400_ai_ci",
        create(charset="utf8mb4", collation="uca1400_ai_ci"),
    ),
    (
        "CREATE TABLE t (a INT) ENGINE=InnoDB, AUTO_INCREMENT=5 AVG_ROW_LENGTH 1 CHECKSUM=1, COMMENT='x' COMPRESSION=''"
        " DATA DIRECTORY='/d' INDEX DIRECTORY '/i' DELAY_KEY_WRITE=0 ENCRYPTION='Y' INSERT_METHOD=LAST KEY_BLOCK_SIZE=8"
        " MAX_ROWS=9 MIN_ROWS=1 PACK_KEYS=DEFAULT PASSWORD='p' ROW_FORMAT=COMPRESSED STATS_AUTO_RECALC=1"
        " STATS_PERSISTENT=DEFAULT"
        " STATS_SAMPLE_PAGES=9 TABLESPACE ts STORAGE DISK UNION=(x,y) AUTOEXTEND_SIZE=4M ENGINE_ATTRIBUTE='{}'"
        " SECONDARY_ENGINE=x PAGE_CHECKSUM=1 TRANSACTIONAL=1 `ENCRYPTED`=YES `PAGE_COMPRESSED`='ON' ENCRYPTION_KEY_ID 3"
        " CONNECTION='mysql://x' CHARSET latin1",
        create(comment="x", charset="latin1"),
    ),
    ("CREATE TABLE t (a INT) TYPE=MyISAM", create()),
    (
        "CREATE TABLE t (a INT) ENGINE=InnoDB PARTITION BY RANGE (a) SUBPARTITION BY HASH (a) SUBPARTITIONS 2"
        " (PARTITION p0 VALUES LESS THAN (10) COMMENT = ')', PARTITION p1 VALUES LESS THAN MAXVALUE ENGINE = InnoDB)",
        create(),
    ),
    ("CREATE TABLE t (a INT)\n/*!50100 PARTITION BY LIST COLUMNS(a)\n(PARTITION p VALUES IN (1,2)) */", create()),
    ("CREATE TABLE t (a INT) PARTITION BY LINEAR KEY ALGORITHM=2 (a) PARTITIONS 4", create()),
    # other sources of the structure
    ("CREATE TABLE t LIKE s.u", create((), like=QualifiedName("s", "u"))),
    ("CREATE TABLE t (LIKE u)", create((), like=QualifiedName(None, "u"))),
    (
        "create /* gh-ost */ table `shop`.`_t_gho` like `shop`.`t`",
        create((), QualifiedName("shop", "_t_gho"), like=QualifiedName("shop", "t")),
    ),
    ("CREATE TABLE t SELECT * FROM u", create((), select=True)),
    ("CREATE TABLE t AS SELECT 1; ", create((), select=True)),
    ("CREATE TABLE t AS (SELECT 1) UNION (SELECT 2)", create((), select=True)),
    ("CREATE TABLE t (SELECT 1)", create((), select=True)),
    ("CREATE TABLE t ((SELECT 1))", create((), select=True)),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB IGNORE SELECT 1 AS a, 2 AS b", create(select=True)),
    ("CREATE TABLE t (a INT) REPLACE AS SELECT 1 AS a", create(select=True)),
    ("CREATE TABLE t (a INT) PARTITION BY HASH(a) PARTITIONS 2 (SELECT 1 AS a)", create(select=True)),
    ("CREATE TABLE t AS WITH q AS (SELECT 1) SELECT * FROM q", create((), select=True)),
    ("CREATE TABLE t TABLE u", create((), select=True)),
    ("CREATE TABLE t VALUES ROW(1,2)", create((), select=True)),
    ("CREATE TABLE `t` (\n  `a` int\n) START TRANSACTION", create()),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB CHARSET=latin1 START TRANSACTION", create(charset="latin1")),
]


@pytest.mark.parametrize(("sql", "expected"), CREATES, ids=[c[0][:60] for c in CREATES])
def test_create_table(sql: str, expected: CreateTable) -> None:
    assert parse_statements(sql) == [expected]
    assert tables_of(expected) == (expected.table,)


def add(column: ColumnDef = A, **fields: Any) -> AddColumn:
    return AddColumn(column, **fields)


def no_column_change(what: str) -> NoColumnChange:
    return NoColumnChange(what)


OPTIONS = no_column_change("table options")
ALTERS: list[tuple[str, tuple[Action, ...]]] = [
    ("", ()),
    # columns
    ("ADD a INT", (add(),)),
    ("ADD COLUMN a INT", (add(),)),
    ("ADD COLUMN IF NOT EXISTS a INT", (add(if_not_exists=True),)),
    ("ADD a INT FIRST", (add(first=True),)),
    ("ADD a INT NOT NULL AFTER `b c`", (add(ColumnDef("a", "int", nullable=False), after="b c"),)),
    ("ADD (a INT)", (add(),)),
    ("ADD COLUMN (a INT, b INT)", (add(), add(B))),
    ("ADD IF NOT EXISTS (a INT, b INT)", (add(if_not_exists=True), add(B, if_not_exists=True))),
    ("ADD (a INT, UNIQUE u (a), INDEX (a), b INT)", (add(), AddKey("unique", ("a",), True, "u"), add(B))),
    (
        "ADD a INT, ADD b INT AFTER a, ALGORITHM=INSTANT",
        (add(), add(B, after="a"), no_column_change("algorithm or lock")),
    ),
    (
        "ADD a INT UNIQUE KEY PRIMARY KEY FIRST",
        (add(ColumnDef("a", "int", unique=True, primary=True, nullable=False), first=True),),
    ),
    ("ADD system INT, ADD period INT", (add(ColumnDef("system", "int")), add(ColumnDef("period", "int")))),
    ("DROP a", (DropColumn("a"),)),
    ("DROP COLUMN a RESTRICT", (DropColumn("a"),)),
    ("DROP COLUMN IF EXISTS `a`, DROP b CASCADE", (DropColumn("a", True), DropColumn("b"))),
    ("DROP period, DROP system", (DropColumn("period"), DropColumn("system"))),
    ("CHANGE a b INT", (ChangeColumn("a", B),)),
    ("CHANGE COLUMN IF EXISTS a b INT FIRST", (ChangeColumn("a", B, first=True, if_exists=True),)),
    ("CHANGE COLUMN `a` `b` INT AFTER c, CHANGE b a INT", (ChangeColumn("a", B, after="c"), ChangeColumn("b", A))),
    ("MODIFY a INT", (ChangeColumn("a", A),)),
    ("MODIFY COLUMN IF EXISTS a INT AFTER b", (ChangeColumn("a", A, after="b", if_exists=True),)),
    (
        "MODIFY a VARCHAR(20) COLLATE latin1_bin",
        (ChangeColumn("a", vc("a", 20, charset="latin1", collation="latin1_bin")),),
    ),
    ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", (RenameColumn("a", "b"), RenameColumn("b", "a"))),
    ("RENAME COLUMN IF EXISTS a TO b", (RenameColumn("a", "b", True),)),
    ("ALTER a SET DEFAULT 5", (SetDefault("a", MySqlColumnDefault("5")),)),
    ("ALTER COLUMN a SET DEFAULT (uuid())", (SetDefault("a", MySqlColumnDefault("(uuid())", True)),)),
    (
        "ALTER COLUMN a SET DEFAULT NULL, ALTER b DROP DEFAULT",
        (SetDefault("a", MySqlColumnDefault(None)), SetDefault("b", None)),
    ),
    ("ALTER COLUMN IF EXISTS a DROP DEFAULT", (SetDefault("a", None, True),)),
    (
        "ALTER COLUMN a SET INVISIBLE, ALTER a SET VISIBLE",
        (no_column_change("column visibility"), no_column_change("column visibility")),
    ),
    # keys
    ("ADD PRIMARY KEY (a, b)", (AddKey("primary", ("a", "b")),)),
    ("ADD CONSTRAINT pk PRIMARY KEY USING BTREE (a)", (AddKey("primary", ("a",)),)),
    ("ADD PRIMARY KEY (a(10))", (AddKey("primary", ("a",), False),)),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", (DropKey("primary"), AddKey("primary", ("a",)))),
    ("ADD UNIQUE (a)", (AddKey("unique", ("a",)),)),
    (
        "ADD UNIQUE INDEX IF NOT EXISTS u (a) COMMENT 'x', ADD b INT",
        (AddKey("unique", ("a",), True, "u", True), add(B)),
    ),
    ("ADD CONSTRAINT c UNIQUE KEY u (a, b(3))", (AddKey("unique", ("a", "b"), False, "u"),)),
    ("ADD CONSTRAINT IF NOT EXISTS c UNIQUE (a)", (AddKey("unique", ("a",), True, "c", True),)),
    ("ADD UNIQUE KEY f ((lower(a)), b)", (AddKey("unique", ("b",), False, "f"),)),
    ("DROP INDEX u, DROP KEY `v`", (DropKey("index", "u"), DropKey("index", "v"))),
    ("DROP INDEX IF EXISTS u", (DropKey("index", "u"),)),
    ("DROP INDEX `PRIMARY`", (DropKey("primary"),)),
    ("DROP CONSTRAINT c", (DropKey("index", "c"),)),
    ("DROP CONSTRAINT IF EXISTS `primary`", (DropKey("primary"),)),
    (
        "RENAME INDEX u TO v, RENAME KEY v TO w",
        (RenameIndex("rename index", "u", "v"), RenameIndex("rename index", "v", "w")),
    ),
    (
        "ADD INDEX (a), ADD KEY k (a(3) DESC) USING BTREE",
        (no_column_change("add index"), no_column_change("add index")),
    ),
    (
        "ADD FULLTEXT INDEX f (a), ADD SPATIAL KEY s (b)",
        (no_column_change("add fulltext index"), no_column_change("add spatial index")),
    ),
    ("ADD VECTOR INDEX v (a) M=6", (no_column_change("add vector index"),)),
    (
        "ADD FOREIGN KEY (a) REFERENCES p ON DELETE SET NULL, ADD CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES p (x)",
        (no_column_change("add foreign key"), no_column_change("add foreign key")),
    ),
    (
        "ADD CHECK (a > 0), ADD CONSTRAINT c CHECK (a IN (1, 2))",
        (no_column_change("add check"), no_column_change("add check")),
    ),
    (
        "DROP FOREIGN KEY IF EXISTS fk, DROP CHECK c",
        (no_column_change("drop constraint"), no_column_change("drop constraint")),
    ),
    (
        "ALTER INDEX i INVISIBLE, ALTER KEY i NOT IGNORED, ALTER CHECK c NOT ENFORCED, ALTER CONSTRAINT c ENFORCED",
        (
            no_column_change("alter index"),
            no_column_change("alter index"),
            no_column_change("alter constraint"),
            no_column_change("alter constraint"),
        ),
    ),
    # the table
    ("RENAME TO u", (RenameTo(QualifiedName(None, "u")),)),
    ("RENAME AS s.u", (RenameTo(QualifiedName("s", "u")),)),
    ("RENAME = u", (RenameTo(QualifiedName(None, "u")),)),
    ("RENAME u, ADD a INT", (RenameTo(QualifiedName(None, "u")), add())),
    ("CONVERT TO CHARACTER SET utf8mb4", (ConvertCharset("utf8mb4"),)),
    ("CONVERT TO CHARSET utf8mb4 COLLATE utf8mb4_bin", (ConvertCharset("utf8mb4", "utf8mb4_bin"),)),
    ("CONVERT TO CHARACTER SET DEFAULT", (ConvertCharset(None),)),
    ("DEFAULT CHARACTER SET = latin1", (TableCharset("latin1"),)),
    ("CHARACTER SET latin1 COLLATE latin1_bin", (TableCharset("latin1", "latin1_bin"),)),
    ("COLLATE utf8mb4_bin, ADD a INT", (TableCharset("utf8mb4", "utf8mb4_bin"), add())),
    ("DEFAULT CHARSET DEFAULT", (TableCharset(None),)),
    ("ENGINE=InnoDB ROW_FORMAT=DYNAMIC, COMMENT 'x', AUTO_INCREMENT = 10", (OPTIONS, TableComment("x"), OPTIONS)),
    ("ENGINE InnoDB, ADD a INT", (OPTIONS, add())),
    ("ENGINE=blackhole", (PartitionDataChange("ENGINE=BLACKHOLE"),)),
    ("TABLESPACE ts STORAGE DISK, ENCRYPTION='Y', SECONDARY_ENGINE=NULL", (OPTIONS, OPTIONS, OPTIONS)),
    (
        "FORCE, LOCK=NONE, ALGORITHM INPLACE",
        (no_column_change("no change"), no_column_change("algorithm or lock"), no_column_change("algorithm or lock")),
    ),
    ("ORDER BY a, b DESC, t.c ASC", (no_column_change("order by"),)),
    ("ADD a INT, ORDER BY a", (add(), no_column_change("order by"))),
    ("ENABLE KEYS", (no_column_change("no change"),)),
    ("DISABLE KEYS, WITHOUT VALIDATION", (no_column_change("no change"), no_column_change("no change"))),
    ("SECONDARY_LOAD", (no_column_change("no change"),)),
    # partitions
    (
        "ADD PARTITION (PARTITION p3 VALUES LESS THAN (30), PARTITION p4 VALUES LESS THAN MAXVALUE)",
        (no_column_change("add partition"),),
    ),
    ("ADD PARTITION IF NOT EXISTS PARTITIONS 4", (no_column_change("add partition"),)),
    ("DROP PARTITION IF EXISTS p0, p1", (PartitionDataChange("drop partition"),)),
    ("TRUNCATE PARTITION ALL", (PartitionDataChange("truncate partition"),)),
    (
        "EXCHANGE PARTITION p WITH TABLE s.u WITHOUT VALIDATION",
        (PartitionDataChange("exchange partition", (QualifiedName("s", "u"),)),),
    ),
    ("CONVERT PARTITION p TO TABLE u", (PartitionToTable("convert partition to table", (QualifiedName(None, "u"),)),)),
    (
        "CONVERT TABLE u TO PARTITION p VALUES LESS THAN (5)",
        (PartitionDataChange("convert table to partition", (QualifiedName(None, "u"),)),),
    ),
    ("DISCARD TABLESPACE", (PartitionDataChange("discard tablespace"),)),
    ("IMPORT TABLESPACE", (PartitionDataChange("import tablespace"),)),
    ("DISCARD PARTITION p, q TABLESPACE", (PartitionDataChange("discard partition tablespace"),)),
    ("REORGANIZE PARTITION p INTO (PARTITION a VALUES LESS THAN (1))", (no_column_change("partition upkeep"),)),
    ("COALESCE PARTITION 2", (no_column_change("partition upkeep"),)),
    ("ANALYZE PARTITION p, q", (no_column_change("partition upkeep"),)),
    ("CHECK PARTITION ALL", (no_column_change("partition upkeep"),)),
    ("REBUILD PARTITION p", (no_column_change("partition upkeep"),)),
    ("REMOVE PARTITIONING", (no_column_change("no change"),)),
    ("PARTITION BY HASH (a) PARTITIONS 4", (no_column_change("partition by"),)),
    ("ADD a INT PARTITION BY KEY() PARTITIONS 4", (add(), no_column_change("partition by"))),
    ("ADD a INT, ENGINE=InnoDB REMOVE PARTITIONING", (add(), OPTIONS, no_column_change("no change"))),
]


@pytest.mark.parametrize(("actions", "expected"), ALTERS, ids=[a[0][:60] for a in ALTERS])
def test_alter_table(actions: str, expected: tuple[Action, ...]) -> None:
    (statement,) = parse_statements(f"ALTER TABLE `shop`.t {actions}")
    assert statement == AlterTable(QualifiedName("shop", "t"), expected)


@pytest.mark.parametrize(
    ("sql", "fields"),
    [
        ("ALTER ONLINE TABLE t ADD a INT", {}),
        ("ALTER OFFLINE TABLE t ADD a INT", {}),
        ("ALTER IGNORE TABLE t ADD a INT", {"ignore": True}),
        ("ALTER ONLINE IGNORE TABLE t ADD a INT", {"ignore": True}),
        ("ALTER TABLE IF EXISTS t ADD a INT", {"if_exists": True}),
        ("ALTER TABLE t NOWAIT ADD a INT", {}),
        ("ALTER TABLE IF EXISTS t WAIT 10 ADD a INT", {"if_exists": True}),
        ("alter /* gh-ost */ table t ADD a INT", {}),
        ("/*!40000 ALTER TABLE t ADD a INT */", {}),
        ("SET STATEMENT max_statement_time=100, lock_wait_timeout=(1) FOR ALTER TABLE t ADD a INT", {}),
        ("ALTER TABLE t ADD a INT /* generated by server */;\n", {}),
    ],
)
def test_alter_table_around_the_actions(sql: str, fields: dict[str, Any]) -> None:
    assert parse_statements(sql) == [AlterTable(T, (add(),), **fields)]


def test_tables_of_alter_table() -> None:
    (statement,) = parse_statements("ALTER TABLE t ADD a INT, RENAME TO s.u")
    assert tables_of(statement) == (T, QualifiedName("s", "u"))
    (statement,) = parse_statements("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u")
    assert tables_of(statement) == (T, QualifiedName(None, "u"))


@pytest.mark.parametrize(
    "sql",
    [
        # no structure in the text
        "CREATE TABLE t",
        "CREATE TABLE t ()",
        "CREATE TABLE t ENGINE=FEDERATED CONNECTION='x'",
        "CREATE TABLE t (INDEX (a))",
        # what this reader leaves to the catalog
        "CREATE TABLE t (a INT, PRIMARY KEY (a, p WITHOUT OVERLAPS))",
        "CREATE TABLE t (a INT) FROBNICATE=1",
        "CREATE TABLE t (a INT) AS",
        "CREATE TABLE t (a INT) b",
        "CREATE TABLE t (a INT,)",
        "CREATE TABLE t (a INT",
        "CREATE TABLE t (a INT))",
        "CREATE TABLE t (a INT) COMMENT='x",
        "CREATE TABLE t (a INT /* x)",
        "CREATE TABLE t (a INT /*! NOT NULL)",
        "CREATE TABLE t (`a INT)",
        "CREATE TABLE t (a INT, CONSTRAINT c)",
        "CREATE TABLE t (a INT, UNIQUE u)",
        "CREATE TABLE t LIKE u v",
        "CREATE TABLE t (LIKE u",
        "CREATE TABLE t SELECT 'x",
        "ALTER TABLE t ADD",
        "ALTER TABLE t ADD a INT,",
        "ALTER TABLE t ADD a INT b",
        "ALTER TABLE t ADD COLUMN (a INT, b INT) AFTER c",
        "ALTER TABLE t MODIFY (a INT)",
        "ALTER TABLE t DROP (a, b)",
        "ALTER TABLE t DROP",
        "ALTER TABLE t DROP a b",
        "ALTER TABLE t CONVERT TO COLLATE utf8mb4_bin",
        "ALTER TABLE t CONVERT",
        "ALTER TABLE t CONVERT TO CHARSET latin1, CHARSET utf8mb4",
        "ALTER TABLE t ADD a CHAR(9) CHARSET latin1, CONVERT TO CHARSET utf8mb4",
        "ALTER TABLE t CONVERT TO CHARSET utf8mb4, MODIFY a LONG",
        "ALTER TABLE t REMOVE",
        "ALTER TABLE t ENGINE",
        "ALTER TABLE t ENGINE=InnoDB ADD a INT",
        "ALTER TABLE t ALTER a SET",
        "ALTER TABLE t ALTER a SET DEFAULT",
        "ALTER TABLE t ALTER INDEX i FROBNICATE",
        "ALTER TABLE t RENAME COLUMN a b",
        "ALTER TABLE t RENAME INDEX a b",
        "ALTER TABLE t ORDER BY a ADD b INT",
        "ALTER TABLE t FROBNICATE",
        "ALTER TABLE t 'x'",
        "ALTER TABLE t ADD a INT UNSIGNED 'x",
        "ALTER TABLE t DISCARD",
        "ALTER TABLE t EXCHANGE PARTITION p",
        "ALTER TABLE t ANALYZE",
    ],
)
def test_unknown_with_its_table(sql: str) -> None:
    (statement,) = parse_statements(sql)
    assert isinstance(statement, UnknownStatement), statement
    assert statement.tables == (T,)
    assert statement.text == sql
    assert statement.reason
    assert tables_of(statement) == (T,)
