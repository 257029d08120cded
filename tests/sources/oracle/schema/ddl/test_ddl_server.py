"""The reader against the test server: what it makes of the log's DDL is what ``ALL_TAB_COLUMNS`` says afterwards."""

from __future__ import annotations

import random
from contextlib import closing

import oracledb
import pytest

from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.ddl import UnknownStatement, parse_ddl_statement
from dev.servers.oracle import Oracle
from tests.sources.oracle.schema.ddl.world import SchemaModel
from tests.support.sources.oracle.oracle_server import mine_rows, rows, run
from tests.support.sources.oracle.oracle_sessions import its_owner, own_server  # noqa: F401 - fixtures

COLUMNS = (
    "SELECT column_name, data_type, CASE WHEN char_length > 0 THEN char_length ELSE data_length END, data_precision, data_scale,"
    " nullable FROM all_tab_columns WHERE owner = 'APP' AND table_name = :1 ORDER BY column_id"
)
PRIMARY = (
    "SELECT k.column_name FROM all_constraints c JOIN all_cons_columns k ON k.owner = c.owner AND"
    " k.constraint_name = c.constraint_name AND k.table_name = c.table_name WHERE c.owner = 'APP' AND c.table_name = :1"
    " AND c.constraint_type = 'P' ORDER BY k.position"
)


def compare(owner: oracledb.Connection, world: SchemaModel, name: str, history: list[str]) -> None:
    """Every fact that was derived is the dictionary's."""
    context = ";\n".join(history)
    found = rows(owner, COLUMNS, name)
    table = world.table(name)
    assert [c.name for c in table.columns] == [f[0] for f in found], context
    for column, (_, data_type, length, precision, scale, nullable) in zip(table.columns, found, strict=True):
        problem = f"{column}\n{data_type} {length} {precision} {scale}\n{context}"
        expected = ColumnType.of_catalog(data_type, length, precision, scale)
        assert ColumnType.from_column(column) == expected, problem
        assert column.nullable == (nullable == "Y"), problem
    primary = tuple(r[0] for r in rows(owner, PRIMARY, name))
    if primary:
        assert table.key == primary, context


SCRIPT = """
CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v VARCHAR2(20 CHAR) DEFAULT 'it''s; (' NOT NULL, n NUMBER(12,2) DEFAULT 0)
ALTER TABLE t ADD (a DATE DEFAULT SYSDATE, b TIMESTAMP(3) WITH LOCAL TIME ZONE, c CLOB)
ALTER TABLE t ADD "mixed Case" NVARCHAR2(7) DEFAULT N'x' NOT NULL ENABLE
ALTER TABLE t MODIFY (v VARCHAR2(50), n NUMBER(15,2) NOT NULL)
ALTER TABLE t MODIFY v NULL
ALTER TABLE t RENAME COLUMN n TO amount
ALTER TABLE t DROP COLUMN a
ALTER TABLE t DROP (b, c) CASCADE CONSTRAINTS
ALTER TABLE t ADD (x NUMBER, y INTEGER, z FLOAT(20), r RAW(16), d2 INTERVAL DAY(3) TO SECOND(2), CONSTRAINT u1 UNIQUE (x, y))
ALTER TABLE t SET UNUSED (z)
ALTER TABLE t DROP UNUSED COLUMNS
ALTER TABLE t ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS
ALTER TABLE t DROP CONSTRAINT u1
ALTER TABLE t MOVE
ALTER TABLE t ENABLE ROW MOVEMENT
ALTER TABLE t READ ONLY
CREATE UNIQUE INDEX ti ON t (x)
DROP INDEX ti
COMMENT ON TABLE t IS 'ALTER TABLE t DROP COLUMN v'
COMMENT ON COLUMN t.v IS 'x'
CREATE SEQUENCE sq START WITH 5
DROP SEQUENCE sq
ALTER TABLE t DROP PRIMARY KEY
ALTER TABLE t ADD CONSTRAINT pk2 PRIMARY KEY (id, amount)
TRUNCATE TABLE t
RENAME t TO t2
ALTER TABLE t2 RENAME TO t
DROP TABLE t
""".strip().splitlines()


def test_every_statement_of_the_log_leaves_what_the_dictionary_has(server: Oracle, owner: oracledb.Connection) -> None:
    start = server.scn()
    live, history = SchemaModel(), []
    for sql in SCRIPT:
        run(owner, sql)
        history.append(sql)
        live.run(sql)
        for name in ("T", "T2"):
            if rows(owner, COLUMNS, name):
                compare(owner, live, name, history)
    assert live.history.current_tables == []
    with closing(server.capture()) as capture:
        texts = mine_rows(capture, start, columns="sql_redo, seg_owner", where="operation_code = 5")
    replayed = SchemaModel()
    assert len(texts) == len(SCRIPT) + 1  # the dropped table is renamed first
    for text, seg_owner in texts:
        found = replayed.run(text, owner=seg_owner)
    assert replayed.history.current_tables == []
    assert found.changes == []  # it was gone with the renaming


TYPES = [
    "NUMBER", "NUMBER(5)", "NUMBER(9,2)", "NUMBER(*,3)", "NUMBER(5,-2)", "INTEGER", "FLOAT", "FLOAT(24)", "REAL", "DOUBLE PRECISION",
    "DECIMAL(7,1)", "NUMERIC", "BINARY_FLOAT", "BINARY_DOUBLE", "CHAR", "CHAR(5 CHAR)", "VARCHAR2(20)", "VARCHAR2(9 BYTE)", "VARCHAR(8)",
    "NCHAR(4)", "NVARCHAR2(30)", "RAW(20)", "DATE", "TIMESTAMP", "TIMESTAMP(0)", "TIMESTAMP(9) WITH TIME ZONE",
    "TIMESTAMP WITH LOCAL TIME ZONE", "INTERVAL DAY TO SECOND", "INTERVAL YEAR(4) TO MONTH", "CLOB", "NCLOB", "BLOB", "ROWID", "XMLTYPE",
]  # fmt: skip
NAMES = ["ID", "A", "B", '"c d"', '"Lower"', "STATUS", "K$#", "COMMENTS"]


class Statements:
    """Random statements about one table; many make sense."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def definition(self) -> str:
        type_ = self.random.choice(TYPES)
        parts = [type_]
        if type_.startswith(("NUMBER", "INT", "DEC")) and self.random.random() < 0.4:
            parts.append(f"DEFAULT {self.random.choice(['1', '-2', '(3)', '1 + 1', 'NULL'])}")
        elif "VARCHAR" in type_ and self.random.random() < 0.4:
            parts.append(f"DEFAULT {self.random.choice(['USER', chr(39) * 2, 'NULL'])}")
        if self.random.random() < 0.3:
            parts.append(self.random.choice(["NOT NULL", "NOT NULL ENABLE", "NULL", "CONSTRAINT nn NOT NULL"]))
        if self.random.random() < 0.1:
            parts.append("/* no, comment */ -- 'none\n")
        return " ".join(parts)

    def create(self) -> str:
        names = self.random.sample(NAMES, self.random.randint(2, 6))
        elements = [f"{n} {self.definition()}" for n in names]
        if self.random.random() < 0.5:
            elements.append(f"CONSTRAINT pk PRIMARY KEY ({', '.join(self.random.sample(names, 2))})")
        if self.random.random() < 0.3:
            elements.append("CHECK (1 = 1)")
        return f"CREATE TABLE r ({', '.join(elements)})" + self.random.choice(
            ["", " TABLESPACE users", " PCTFREE 5 LOGGING"]
        )

    def alter(self) -> str:
        pick, (one, two) = self.random.choice, self.random.sample(NAMES, 2)
        clauses = [
            f"ADD {one} {self.definition()}",
            f"ADD ({one} {self.definition()}, {two} {self.definition()})",
            f"MODIFY {one} {self.definition()}",
            f"MODIFY ({one} {self.definition()}, {two} {pick(['NULL', 'NOT NULL'])})",
            f"DROP COLUMN {one}",
            f"DROP ({one}, {two})",
            f"SET UNUSED COLUMN {one}",
            f"RENAME COLUMN {one} TO {two}",
            "DROP PRIMARY KEY",
            f"ADD PRIMARY KEY ({one})",
            f"ADD CONSTRAINT pk PRIMARY KEY ({one}, {two})",
            "ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS",
            f"ADD ({one} {self.definition()}) MODIFY ({two} {self.definition()})",
        ]
        return f"ALTER TABLE r {pick(clauses)}"


@pytest.mark.parametrize("seed", range(6))
def test_what_the_server_accepts_is_understood_and_both_end_alike(owner: oracledb.Connection, seed: int) -> None:
    statements, world = Statements(seed), SchemaModel()
    history: list[str] = []
    accepted = 0
    for step in range(60):
        sql = statements.alter() if history and step % 20 else statements.create()
        if history and not step % 20:
            run(owner, "DROP TABLE r PURGE")
            world.run("DROP TABLE r PURGE")
            history.clear()
        try:
            run(owner, sql)
        except oracledb.DatabaseError as error:
            if error.args[0].code in (0, 600):  # a lost connection, or a defect of the test server
                raise
            continue
        accepted += 1
        history.append(sql)
        assert not isinstance(parse_ddl_statement(sql), UnknownStatement), parse_ddl_statement(sql)
        world.run(sql)
        compare(owner, world, "R", history)
    assert accepted > 15
