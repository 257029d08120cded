"""The shared suite on an Oracle database of one's own: see ``tests/support/real_oracle.py``. Without ``ORACLE_DSN`` only that way is tested."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from dev.servers import Oracle
from tests.sources.oracle_adapter import OracleAdapter
from tests.sources.suite import INT, TEXT, SourceSuite
from tests.support.real_oracle import RealOracle


class TestRealOracle(SourceSuite):
    __test__ = "ORACLE_DSN" in os.environ

    @pytest.fixture
    def db(self) -> Iterator[OracleAdapter]:
        with ExitStack() as stack:
            yield OracleAdapter(cast(Oracle, RealOracle(os.environ)), stack)


def test_a_database_that_is_only_known_by_its_address_is_captured(tmp_path: Path) -> None:
    with Oracle() as server, ExitStack() as stack:
        environment = {
            "ORACLE_DSN": server.dsn, "ORACLE_PDB": str(server.pdb), "ORACLE_CAPTURE": f"{server.user}/{server.password}",
            "ORACLE_ADMIN": f"{server.admin_user}/{server.admin_password}",
        }  # fmt: skip
        db = OracleAdapter(cast(Oracle, RealOracle(environment)), stack)
        db.create("a", {"id": INT, "note": TEXT}, ("id",))
        with db.transaction() as t:
            t.insert("a", {"id": 1, "note": "x"})
        connector = db.connector(tmp_path)
        connector.capture()
        db.server.switch_log()
        with db.transaction() as t:
            t.update("a", {"id": 1}, {"note": "y"})
        connector.capture()
        assert connector.rows(f"{db.namespace}.a") == db.rows("a") == [{"id": 1, "note": "y"}]
