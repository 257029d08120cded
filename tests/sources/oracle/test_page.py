"""``docs/sources/oracle.md``: its statements make a database ready."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column
from dev import paths
from dev.servers import Oracle

PAGE = (paths.ROOT / "docs" / "sources" / "oracle.md").read_text()
INSIDE = PAGE[PAGE.index("### Inside a pluggable database") : PAGE.index("### Encryption")]
NARROWER = PAGE[PAGE.index("### Narrower grants") : PAGE.index("### Inside a pluggable database")]
"""``test_checks`` runs these statements."""
TABLE = TableId(namespace="INVENTORY", name="CUSTOMERS", catalog="ORCLPDB1")


@pytest.fixture(scope="module")
def server() -> Iterator[Oracle]:
    """Start a server as it comes, without supplemental logging."""
    with Oracle({"supplemental": []}) as server:
        server.admin(
            "CREATE USER inventory IDENTIFIED BY inventory QUOTA UNLIMITED ON users",
            "GRANT CREATE SESSION, CREATE TABLE TO inventory",
        )
        server.sql("CREATE TABLE customers (id NUMBER(9) PRIMARY KEY)", user="inventory", password="inventory")
        yield server


def _statements(page: str) -> list[str]:
    blocks = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    return [s.strip() for block in blocks for s in block.split(";") if s.strip()]


def _config(server: Oracle, **properties: str) -> OracleConfig:
    return OracleConfig.parse(
        {
            "topic.prefix": "t", "database.hostname": server.host, "database.port": server.port, "database.user": "c##cdc",
            "database.password": "secret", "database.dbname": server.database, "database.pdb.name": server.pdb,
            "schema.include.list": "INVENTORY", **{name.replace("__", "."): value for name, value in properties.items()},
        }
    )  # fmt: skip


def test_the_statements_of_the_page_make_a_database_ready(server: Oracle) -> None:
    statements = _statements(PAGE.replace(INSIDE, "").replace(NARROWER, ""))
    assert len(statements) > 15
    for statement in statements:
        table = statement.startswith(("ALTER TABLE", "CREATE TABLE", "INSERT"))  # in the pluggable database
        server.admin(statement, **({} if table else {"dsn": server.dsn}))
    assert [f.problem for f in check_prerequisites(_config(server)) if f.fatal] == []
    assert [
        f.problem for f in check_prerequisites(_config(server)) if "may not read" in f.problem or "lacks" in f.problem
    ] == []


@pytest.mark.parametrize("autonomous", [False, True])
def test_the_statements_of_the_page_make_a_pluggable_database_ready(autonomous: bool) -> None:
    with Oracle({"supplemental": [], "autonomous": autonomous}) as server:
        server.sql("CREATE TABLE t (id NUMBER(9) PRIMARY KEY)", "ALTER TABLE t ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
        if not autonomous:
            server.admin(*re.findall(r"`(ALTER DATABASE ADD [^`]*)` in the root", INSIDE), dsn=server.root_dsn)
        for statement in _statements(INSIDE):
            if not statement.startswith("EXECUTE"):  # the package of GoldenGate is no part of the test server
                server.admin(statement)
        properties = {"database__user": "cdc", "database__dbname": "ORCLPDB1", "schema__include__list": "APP"}
        assert [
            f.problem for f in check_prerequisites(_config(server, **properties)) if f.fatal or "lacks" in f.problem
        ] == []


@pytest.mark.parametrize(
    ("declared", "arrow", "row", "shown"),
    [
        ("NUMBER(2)", "int8", "`NUMBER(p)`", "int8"),
        ("NUMBER(9)", "int32", "`NUMBER(p)`", "int32"),
        ("NUMBER(16,-2)", "int64", "`NUMBER(p)`", "int64"),
        ("NUMBER(12,2)", "decimal128(12, 2)", "other `NUMBER(p,s)`", "decimal128"),
        ("NUMBER", "string", "`NUMBER`,", "exact text"),
        ("FLOAT(10)", "string", "`NUMBER`,", "exact text"),
        ("INTEGER", "decimal128(38, 0)", "`INTEGER`", "decimal128"),
        ("BINARY_FLOAT", "float", "`BINARY_FLOAT`", "float, double"),
        ("CHAR(3)", "string", "`CHAR`", "string"),
        ("ROWID", "string", "`CHAR`", "string"),
        ("DATE", "timestamp[us]", "`DATE`", "timestamp[us]"),
        ("TIMESTAMP(3)", "timestamp[us]", "`TIMESTAMP(0…6)`", "timestamp[us]"),
        ("TIMESTAMP(9)", "timestamp[ns]", "`TIMESTAMP(7…9)`", "timestamp[ns]"),
        ("TIMESTAMP(6) WITH TIME ZONE", "string", "`TIMESTAMP WITH TIME ZONE`", "string, with its offset"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "timestamp[us, tz=UTC]", "`TIMESTAMP WITH LOCAL", "timestamp in UTC"),
        ("INTERVAL DAY(2) TO SECOND(6)", "int64", "`INTERVAL", "int64 microseconds"),
        ("RAW(10)", "binary", "`RAW`", "binary"),
        ("XMLTYPE", "string", "`CLOB`", "string"),
        *((name, "null", "anything else", "always null") for name in ("LONG", "BFILE", "UROWID")),
        ("BOOLEAN", "bool", "`BOOLEAN` (23ai)", "bool, from snapshots"),
        *((name, "string", "`JSON` (21c), `VECTOR` (23ai)", "string, from snapshots") for name in ("JSON", "VECTOR")),
    ],
)
def test_the_table_of_types_is_that_of_the_code(declared: str, arrow: str, row: str, shown: str) -> None:
    required = {"topic.prefix": "t", "database.hostname": "h", "database.user": "u", "database.dbname": "D"}
    config = OracleConfig.parse(required)
    assert make_column(TABLE, "C", ColumnType.parse(declared), config, nullable=True).type == arrow
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    assert shown in line.split("|")[2]


def test_properties_of_the_page_exist() -> None:
    known = {str(f.alias) for f in OracleConfig.model_fields.values()} | {
        *OracleConfig.IGNORED,
        *OracleConfig.NOT_SUPPORTED,
    }
    named = set(
        re.findall(
            r"`((?:log\.mining|database|snapshot|schema|rac|query|lob|time|interval|decimal|binary|internal)\.[a-z.]+[a-z])",
            PAGE,
        )
    )
    families = {"log.mining.batch.size", "log.mining.sleep.time", "log.mining.scn.gap.detection", "log.mining.clientid"}
    assert len(named) > 20
    assert {name for name in named if name not in known and name not in families} == set()
