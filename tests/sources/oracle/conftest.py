"""The Oracle server that the tests of the source share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from airflow_provider_cdc.sources.oracle.schema import catalog_reader
from dev.servers.oracle import Oracle
from tests.support.sources.oracle import oracle_real, oracle_server
from tests.support.sources.oracle.oracle_server import drop_all


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The server that all tests share: a real one where ``ORACLE_DSN`` is set (see ``oracle_real``).

    Tests that change its settings or lose its logs start one of their own, which is always our test server.
    """
    if oracle_real.is_real_server_given():
        with oracle_real.open_real_server() as real:
            yield cast(Oracle, real)
        return
    with Oracle() as server:
        yield server


@pytest.fixture
def schema(oracle: Oracle) -> Oracle:
    """The shared server, with nothing in the owner's schema."""
    drop_all(oracle)
    return oracle


@pytest.fixture
def redo_at_once(oracle: Oracle) -> Iterator[None]:
    """The redo of open transactions is in the log at once, as that of large ones is."""
    with oracle_server.redo_at_once(oracle):
        yield


@pytest.fixture(autouse=True)
def told_nothing_yet() -> None:
    """Warnings that a process gives once are given once a test."""
    catalog_reader._warned.clear()
