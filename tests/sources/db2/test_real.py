"""The shared suite on a real Db2 is ``DB2_DSN=… dev/test tests/sources/test_suite_db2.py`` (see ``db2_real``).

Here some of it runs on the test server as if it were a real one, known by its DSN alone: so the way there is not broken when it is needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import Adapter, SourceSuite
from tests.support.sources.db2 import db2_real
from tests.support.sources.db2.db2_real import RealDb2

pytestmark = pytest.mark.skipif(
    db2_real.is_real_server_given(), reason="tests/sources/test_suite_db2.py has all of it on the real Db2"
)


def name_server(db2: Db2) -> RealDb2:
    """The test server, by what a person would know of it."""
    environment = {
        "DB2_DSN": f"{db2.host}:{db2.port}/{db2.database}", "DB2_USER": db2.user, "DB2_PASSWORD": db2.password, "DB2_ADMIN_USER": db2.owner,
        "DB2_ADMIN_PASSWORD": db2.owner_password, "DB2_AUTHENTICATION": "server",
    }  # fmt: skip
    return RealDb2(environment)


@pytest.fixture(scope="module")
def real_server(db2: Db2) -> Iterator[RealDb2]:
    with name_server(db2) as server:
        yield server


@pytest.fixture
def db(real_server: RealDb2) -> Iterator[Adapter]:
    with ExitStack() as stack:
        yield Db2Adapter(real_server, stack)


class TestOursAsIfItWereReal:
    filled_adapter = SourceSuite.filled_adapter
    test_snapshot_then_stream = SourceSuite.test_snapshot_then_stream
    test_what_is_rolled_back_is_not_captured = SourceSuite.test_what_is_rolled_back_is_not_captured
    test_positions_grow_with_every_transaction = SourceSuite.test_positions_grow_with_every_transaction


def test_what_the_agent_has_published_grows(real_server: RealDb2) -> None:
    real_server.sql("CREATE SCHEMA SUITE_0", "CREATE TABLE SUITE_0.T (ID INTEGER NOT NULL PRIMARY KEY)")
    real_server.add_table("SUITE_0", "T", upd_to_del_ins=False)
    before = real_server.catch_up()
    real_server.transaction("INSERT INTO SUITE_0.T VALUES (1)", "UPDATE SUITE_0.T SET ID = 2")
    assert real_server.catch_up() > before
    assert real_server.rows('SELECT IBMSNAP_OPERATION FROM ASNCDC."CDC_SUITE_0_T"') == [("I",), ("U",)]


def test_schemas_of_tests_are_gone_at_the_end(db2: Db2, real_server: RealDb2) -> None:
    with name_server(db2) as another:
        another.sql(
            "CREATE SCHEMA SUITE_00",
            'CREATE TABLE SUITE_00."t" (ID INTEGER NOT NULL PRIMARY KEY)',
            "CREATE SCHEMA OTHER_00",
        )
        another.add_table("SUITE_00", "t")
    schemas = {name for (name,) in real_server.rows("SELECT SCHEMANAME FROM SYSCAT.SCHEMATA")}
    assert "SUITE_00" not in schemas
    assert "OTHER_00" in schemas, "it is somebody else's"
    real_server.sql("DROP SCHEMA OTHER_00 RESTRICT")


def test_controls_of_the_test_server_skip_with_their_reason(real_server: RealDb2) -> None:
    with pytest.raises(pytest.skip.Exception, match="table_at is a control of the test server"):
        real_server.table_at("A", "T")
    with pytest.raises(pytest.skip.Exception, match="asncap runs on its host"):
        real_server.agent("pause")
    with pytest.raises(pytest.skip.Exception, match="no before_prefix"):
        real_server.add_table("A", "T", before_prefix="X")
    assert real_server.agent("resume")


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, member in vars(RealDb2).items()
        if inspect.isfunction(member) and not n.startswith("_") and n in vars(Db2)
    ],
)
def test_what_a_real_server_can_do_is_called_as_the_test_servers(name: str) -> None:
    real, ours = (inspect.signature(getattr(kind, name)).parameters for kind in (RealDb2, Db2))
    assert [(p.name, p.kind, p.default) for p in real.values()] == [(p.name, p.kind, p.default) for p in ours.values()]
