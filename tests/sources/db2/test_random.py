"""Random work of several sessions, captured in many short runs with small blocks, fetches and windows: the change log is what the server held, at any LSN.

Nothing is killed here, and no one writes while a capture runs, so that a seed always does the same; ``tests/crash/test_db2.py`` is the other half.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceBusy
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import db2_connector
from tests.support.change_log.log_consistency import consistent
from tests.support.processes.crash_db2 import SMALL, shrink_limits
from tests.support.sources.db2.db2_history import Db2History, plain_value
from tests.support.sources.db2.db2_manners import draw_server_options
from tests.support.sources.db2.db2_rows import KEYS
from tests.support.sources.db2.db2_workload import Db2Writer

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)
ROUNDS = 4


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(1, 21))
def test_what_random_sessions_do_is_captured_as_the_server_held_it(
    db2_factory: Callable[..., Db2], tmp_path: Path, seed: int
) -> None:
    schema, r = f"RANDOM_{next(_numbers)}", Random(seed)
    db2 = db2_factory(**draw_server_options(r))
    with closing(Db2Writer(db2, seed, schema, agent=0.05)) as writer:
        writer.prepare()
        writer.write(r.randrange(30))
        connector = db2_connector(db2, tmp_path, schema_include_list=schema)
        connector.properties |= SMALL | {"batch.max.rows": r.choice((7, 40, 1000))}
        writer.finish()  # a snapshot waits for transactions that are open
        for _ in range(ROUNDS):
            writer.finish("DOC")  # its large objects are read, and no one else is to have them locked
            writer.calm()
            with shrink_limits(r):
                try:
                    connector.capture()
                except SourceBusy:  # a table is read again while an open session has changed it
                    writer.finish()
                    connector.capture()
            writer.write(r.randrange(20, 60))
            writer.note_commits()
        writer.finish()
        truths = writer.truths(10)
        with shrink_limits(r):
            connector.capture()
        history = Db2History(connector.changelog, truths, f"test.{schema}.", writer).finish()
        for table in KEYS:
            ends_equal(writer, history, table)
        assert history.compared > len(KEYS)
        consistent(connector)
        writer.remove()


def ends_equal(writer: Db2Writer, history: Db2History, table: str) -> None:
    """The replayed table is the source's, with its large objects."""
    name = f"test.{writer.schema}.{table}"
    replayed = [{k: plain_value(v) for k, v in row.items()} for row in history.rows(name)]
    there = [{k: plain_value(v) for k, v in row.items()} for row in writer.rows(table)]
    assert sorted(replayed, key=_order) == sorted(there, key=_order)


def _order(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
