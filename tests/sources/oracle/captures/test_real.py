"""The shared suite on a real Oracle, where ``ORACLE_DSN`` names one (see ``oracle_real``).

Elsewhere some of it runs on the test server as if it were a real one, known by its DSN alone: so the way there is not broken when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import OracleAdapter
from tests.sources.suite import Adapter, SourceSuite
from tests.support.sources.oracle import oracle_real
from tests.support.sources.oracle.oracle_real import RealOracle


@pytest.fixture(scope="module")
def real_server() -> Iterator[RealOracle]:
    if oracle_real.is_real_server_given():
        with oracle_real.open_real_server() as server:
            yield server
        return
    with Oracle({"owner": "SOMEBODY", "threads": 2}) as ours:
        environment = {
            "ORACLE_DSN": ours.dsn, "ORACLE_USER": ours.user, "ORACLE_PASSWORD": ours.password, "ORACLE_PDB": ours.pdb or "",
            "ORACLE_ADMIN_PASSWORD": ours.admin_password, "ORACLE_NODES": ",".join(ours.nodes),
        }  # fmt: skip
        with RealOracle(environment) as server:
            yield server


@pytest.fixture(params=["redo_log_catalog", "hybrid"])
def db(real_server: RealOracle, request: pytest.FixtureRequest) -> Iterator[Adapter]:
    with ExitStack() as stack:
        yield OracleAdapter(real_server, stack, traceable=request.param == "hybrid", log_mining_strategy=request.param)


if oracle_real.is_real_server_given():

    class TestRealOracle(SourceSuite):
        """All of it."""

else:

    class TestOursAsIfItWereReal:
        filled_adapter = SourceSuite.filled_adapter
        test_snapshot_then_stream = SourceSuite.test_snapshot_then_stream
        test_values_that_the_log_leaves_out_stay_as_they_were = (
            SourceSuite.test_values_that_the_log_leaves_out_stay_as_they_were
        )
        test_what_is_rolled_back_is_not_captured = SourceSuite.test_what_is_rolled_back_is_not_captured
        test_columns_added_and_dropped = SourceSuite.test_columns_added_and_dropped
        test_positions_grow_with_every_transaction = SourceSuite.test_positions_grow_with_every_transaction


def test_controls_of_the_test_server_skip_with_their_reason(real_server: RealOracle) -> None:
    with pytest.raises(pytest.skip.Exception, match="expire_undo is a control of the test server"):
        real_server.expire_undo()


def test_the_newest_scn_grows_and_logs_are_switched(real_server: RealOracle) -> None:
    before = real_server.scn()
    first = real_server.switch_log()
    assert real_server.switch_log() > first
    assert real_server.scn() > before
