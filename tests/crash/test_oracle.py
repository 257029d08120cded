"""Captures of Oracle that are killed while several sessions write; what is captured is what the engine held, at any SCN."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.log_consistency import consistent
from tests.support.change_log.replay_history import History
from tests.support.connectors import Connector
from tests.support.processes.crash_oracle import SMALL
from tests.support.processes.fork import Forks, Run, RunEnd
from tests.support.sources.oracle.oracle_neighbour import NeighbourWriter
from tests.support.sources.oracle.oracle_workload import KEYS, OracleWriter

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def oracle_forks() -> Iterator[Forks]:
    """Runs captures of Oracle in processes of their own."""
    with Forks(
        "tests.support.processes.crash",
        "airflow_provider_cdc.sources.oracle.source",
        "tests.support.processes.crash_oracle",
    ) as forks:
        yield forks


class CrashBench:
    """A server, a writer, and a connector whose runs die."""

    def __init__(self, server: Oracle, forks: Forks, seed: int, folder: Path, strategy: str) -> None:
        self.server, self._forks, self._folder = server, forks, folder
        self.writer = OracleWriter(server, seed, plain=strategy == "hybrid")
        self.connector: Connector = oracle_connector(
            server, folder, schema_include_list="APP", lob_enabled=True, log_mining_strategy=strategy
        )
        self.connector.properties |= SMALL
        self.died: Counter[str] = Counter()

    def start(self, at: int = 0, **options: Any) -> Run:
        return self._forks.start(
            "tests.support.processes.crash_oracle:capture", folder=str(self._folder), kind="oracle", at=at,
            options=self.connector.properties, secrets=self.connector.secrets, **options,
        )  # fmt: skip

    def ended(self, run: Run, killed: str = "") -> RunEnd:
        """Wait for a run; only a kill may have ended it early."""
        ended = run.wait()
        if "definition of a table was changed after the snapshot started" in ended.text:  # ORA-01466; a retry continues
            assert ended.error == "SourceUnavailable"
            self.died[ended.error] += 1
            return ended
        assert ended.error == "", ended.text
        assert ended.signal in (0, signal.SIGKILL)
        if ended.signal:
            self.died[killed or (self._folder / "died").read_text()] += 1
        return ended

    def purge(self) -> None:
        """Purge the log as an administrator does who knows how far the capture is."""
        offset = self.connector.store.load_offset("test").offset
        if offset is not None and offset.position is not None:
            self.writer.purge(int(offset.position["scn"]))

    def equal(self) -> History:
        """All that the writer remembers is what the change log says."""
        self.writer.look()
        truths = self.writer.truths
        return History(self.connector.changelog, "test", truths, "test.APP.").finish()


CLUSTER = {"threads": 2, "pdbs": ["ORCLPDB1", "ORCLPDB2"]}
FORMS: dict[str, dict[str, Any]] = {
    "redo_log_catalog": {"cdb": False}, "redo_log_catalog-cluster": CLUSTER, "hybrid-cluster": CLUSTER,
    "hybrid-inside": {**CLUSTER, "local": True}, "hybrid-autonomous": {**CLUSTER, "local": True, "autonomous": True},
}  # fmt: skip
"""Options of the server. Two instances are harder than one, whatever their dictionary is."""
CASES = [("hybrid-cluster", 30), ("redo_log_catalog", 31), ("redo_log_catalog-cluster", 32)]
CASES += [("hybrid-autonomous", 33), ("hybrid-inside", 34)]
CASES += [("hybrid-cluster", seed) for seed in range(1, 21)]


@pytest.mark.parametrize(
    ("form", "seed"), [pytest.param(*case, marks=[] if case == CASES[0] else pytest.mark.long) for case in CASES]
)
def test_a_stream_killed_at_random_moments_is_what_the_engine_held_at_any_scn(
    oracle_forks: Forks, folder: Path, form: str, seed: int
) -> None:
    options, r = FORMS[form], Random(seed)
    with ExitStack() as stack:
        server = stack.enter_context(Oracle(dict(options)))
        server.configure(
            partial_xids=r.random() < 0.5,
            commits_wait=r.random() < 0.5,
            lob_shape=r.choice(("19c", "23ai", "23ai_basicfile")),
            held_writers=[2] if options.get("threads") == 2 and seed % 2 else [],
        )
        bench = CrashBench(server, oracle_forks, seed, folder, form.partition("-")[0])
        writer = stack.enter_context(closing(bench.writer))
        writer.prepare()
        if server.cdb:
            stack.enter_context(NeighbourWriter(server, seed))
        writer.write(40)
        for turn in range(14):
            at = 0 if turn % 2 else r.randrange(1, 90)
            run = bench.start(at)
            writer.write(r.randrange(30, 120))
            if not at:
                os.kill(run.pid, signal.SIGKILL)
            writer.release_archiving()
            bench.ended(run, "" if at else "while the writer wrote")
            bench.purge()
        assert bench.died["while the writer wrote"] > 1
        assert bench.died.total() > 4
        writer.write(30)
        writer.rewrite()
        writer.finish()
        bench.ended(bench.start())
        history = bench.equal()
        chosen = (form, seed) in CASES[:3]  # of any seed, kills may leave few positions to compare
        assert history.positions >= (20 if chosen else 10)
        assert history.compared >= (40 if chosen else 10)
        assert history.rereads >= chosen
        consistent(bench.connector)
        assert {"rollback to savepoint", "switch", "fail", "fail_late"} <= set(writer.done)
        assert history.snapshot_tables == set(KEYS)
        # where runs are killed for so long that the first snapshot comes late, a table may be empty from there on
        assert not chosen or [t for t in KEYS if f"test.APP.{t}" not in history.tables] == []
