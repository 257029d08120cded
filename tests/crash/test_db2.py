"""Captures of a Db2 that are killed while several sessions write and the capture agent stops, waits and dies; what is captured is what the server held, at any LSN."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_lifecycle
from airflow_provider_cdc.core.errors import LeaseHeld
from dev.servers import Db2
from tests.sources.db2.test_random import ends_equal
from tests.sources.db2_adapter import db2_connector
from tests.support.change_log.log_consistency import consistent
from tests.support.patience import wait_until
from tests.support.processes.crash_db2 import SMALL
from tests.support.processes.fork import Forks, Run, RunEnd
from tests.support.sources.db2.agent_stacks import read_agent_stacks
from tests.support.sources.db2.db2_history import Db2History
from tests.support.sources.db2.db2_manners import draw_server_options
from tests.support.sources.db2.db2_rows import KEYS
from tests.support.sources.db2.db2_workload import Db2Writer

pytestmark = pytest.mark.crash

SWITCH = "switch-capture-instance"


@pytest.fixture(scope="module")
def db2_forks() -> Iterator[Forks]:
    """Runs captures of Db2 in processes of their own."""
    with Forks(
        "tests.support.processes.crash", "airflow_provider_cdc.sources.db2.source", "tests.support.processes.crash_db2"
    ) as forks:
        yield forks


class CrashBench:
    """A server, a writer, and a connector whose runs die.

    :ivar died: how runs ended that did not get to the end of the log
    :ivar pending: tables are to be read, and so locked
    """

    def __init__(self, server: Db2, forks: Forks, seed: int, folder: Path) -> None:
        self.server, self._forks, self._folder, self._random = server, forks, folder, Random(seed)
        self.writer = Db2Writer(server, seed, "CRASH", agent=0.05)
        self.connector = db2_connector(server, folder, schema_include_list="CRASH")
        self.connector.properties |= SMALL
        self.died: Counter[str] = Counter()
        self.pending = True

    def start(self, at: int = 0) -> Run:
        return self._forks.start(
            "tests.support.processes.crash_db2:capture", folder=str(self._folder), kind="db2", seed=self._random.randrange(1000), at=at,
            options=self.connector.properties, secrets=self.connector.secrets,
        )  # fmt: skip

    def ended(self, run: Run, killed: str = "") -> RunEnd:
        """Wait for a run; only a kill, a server that is gone, someone's lock or ALTER TABLE may have ended it early."""
        ended = run.wait()
        altered = (
            ended.error == "PrerequisiteError" and "DATA CAPTURE NONE" in ended.text
        )  # by the writer, for a moment
        if altered or ended.error in ("SourceUnavailable", "SourceBusy"):
            self.died[ended.error] += 1
            return ended
        assert ended.error == "", ended.text + read_agent_stacks(self.server, ended.text)
        assert ended.signal in (0, signal.SIGKILL)
        if ended.signal:
            self.died[killed or (self._folder / "died").read_text()] += 1
        else:
            self.pending = False
        return ended

    def to_the_end(self) -> None:
        """A run that no one kills."""
        self.writer.finish()
        self.writer.calm()
        self.server.catch_up()
        ended = self.ended(self.start())
        assert (ended.error, ended.signal) == ("", 0)

    def prune(self) -> None:
        """Prune the change tables as an administrator does who knows how far the capture is."""
        self.writer.note_commits()
        offset = self.connector.store.load_offset("test").offset
        if offset is not None and offset.position is not None and not self.pending:
            lsn = bytes.fromhex(offset.position["commit_lsn"].replace(":", ""))
            self.server.prune(lsn)

    # -- other change tables ------------------------------------------------------------------------------------------

    def altered_while_inactive(self, table: str) -> None:
        """The online procedure; that nothing was changed meanwhile is said by the command."""
        self.to_the_end()
        with self.writer.anew(table):
            self.writer.add_marked(table)
            self.server.catch_up()
            self._carry_out(table, ["writers-stopped"], die=False)

    def switched(self, table: str, *, stopped: bool) -> None:
        """A new change table for a table that has one column more.

        :param stopped: no one writes meanwhile; otherwise the table is read again
        """
        self.to_the_end()
        with self.writer.anew(table):
            self.writer.add_to_table(table)
            if not stopped:
                self.writer.lose(table)
            self._carry_out(table, ["writers-stopped"] if stopped else [], die=True)
            self.writer.grant(table)
        self.pending = self.pending or not stopped

    def _carry_out(self, table: str, flags: list[str], *, die: bool) -> None:
        """Carry out the command; it may be killed at first. Where the table is read again, rows are changed that no one logs."""
        arguments: dict[str, Any] = {"name": SWITCH, "table": self.writer.name(table), "flags": flags}
        if die:
            run = self._forks.start(
                "tests.support.processes.crash_db2:procedure", folder=str(self._folder), at=self._random.randint(1, 6),
                options=self.connector.properties, secrets=self.connector.secrets, **arguments,
            )  # fmt: skip
            ended = run.wait()
            assert ended.error == "", ended.text
            if not ended.signal:
                return
            self.died[f"in {SWITCH}"] += 1

        def report_line(line: str) -> None:
            if not flags and not self.writer.is_registered(table):
                self.writer.write_to(table)

        def is_done() -> bool:
            definition = self.connector.definition()
            opened = open_lifecycle(definition, self.connector.state_url, secrets=self.connector.secrets)
            with contextlib.suppress(LeaseHeld), opened as lifecycle:
                plan = lifecycle.plan_procedure(SWITCH, self.writer.name(table), flags)
                lifecycle.carry_out(plan, "test", "tests", report_line)
                return True
            return False

        wait_until(is_done, "the lease of the run that died is over")

    def equal(self) -> Db2History:
        """All that the server remembers is what the change log says."""
        truths = self.writer.truths(35)  # some may be of before the snapshot
        history = Db2History(self.connector.changelog, truths, "test.CRASH.", self.writer).finish()
        for table in KEYS:
            ends_equal(self.writer, history, table)
        return history


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 21))])
def test_a_stream_killed_at_random_moments_is_what_the_server_held_at_any_lsn(
    db2_forks: Forks, folder: Path, seed: int
) -> None:
    r = Random(seed)
    with ExitStack() as stack:
        server = stack.enter_context(Db2(draw_server_options(r)))
        bench = CrashBench(server, db2_forks, seed, folder)
        writer = stack.enter_context(closing(bench.writer))
        writer.prepare()
        writer.write(30)
        tables = r.sample(sorted(KEYS), 3)
        for turn in range(10):
            at = 0 if turn % 2 else r.randrange(1, 60)
            run = bench.start(at)
            # a busy machine reads faster than it writes, so that a run would end before it is killed
            writer.write(r.randrange(20, 60) if at else r.randrange(1, 15))
            if turn == 6:
                writer.kill_server()
                writer.write(10)
            if not at:
                os.kill(run.pid, signal.SIGKILL)
                writer.write(r.randrange(10, 45))
            writer.finish(*([] if bench.pending else ["DOC"]))  # its large objects are read
            writer.calm()
            bench.ended(run, "" if at else "while the writer wrote")
            bench.prune()
            if turn == 3:
                bench.switched(tables[0], stopped=False)
            elif turn == 5:
                bench.switched(tables[1], stopped=True)
            elif turn == 8:
                bench.altered_while_inactive(tables[2])
        assert bench.died["while the writer wrote"] > 0
        assert bench.died.total() > 4
        bench.to_the_end()
        history = bench.equal()
        chosen = seed == 1  # of any seed, kills may leave few positions to compare
        assert history.positions >= (20 if chosen else 10)
        assert history.compared >= (60 if chosen else 20)
        assert history.rereads >= chosen
        consistent(bench.connector)
        assert {"rollback to savepoint", "again", "swap", "fail_late", "server killed"} <= set(writer.done)
