"""Captures of the memory source that are killed at every step towards something durable, one after the other.

After each death the next run must bring the change log to where the source is: every event once, in order, and after the batch
that follows no file is left that no one needs.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.models import LeaseRow
from tests.support.change_log.log_consistency import consistent
from tests.support.connectors import Connector
from tests.support.processes.crash import properties, purge_confirmed, source, write_much
from tests.support.processes.fork import Forks
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.signals import signal_state, snapshot

pytestmark = pytest.mark.crash

CAPTURE = "tests.support.processes.crash:capture"
SEED, SNAPSHOT, STREAM, LATER = 0, 14, 18, 22
"""The snapshot is of the database after 14 steps, the stream is from there to the 18th: two batches each, with a schema change, and every
kind of step towards something durable. Up to the 22nd there are only more files."""
KINDS = {
    "before open file", "before write", "before close file", "before create", "before link", "after link",
    "before transaction", "inside transaction", "after transaction",
}  # fmt: skip


def _connector(folder: Path) -> Connector:
    return Connector(folder, "memory", properties())


def _equal(connector: Connector, db: MemoryDatabase) -> None:
    connector.replay.advance()
    for table in map(str, db.read_consistent_view()[1]):
        assert connector.rows(table) == sorted(db.copy_rows(table), key=repr), table


def _one_more(db: MemoryDatabase) -> None:
    """A batch that follows."""
    table = str(min(db.read_consistent_view()[1], key=str))
    with db.transaction() as t:
        t.insert(table, {"id": 10_000 + len(db.log)})


def _check_recovery(folder: Path, steps: int, *, at_once: bool = False) -> None:
    """Check that a run here, in this process, makes good what the deaths before it left undone.

    :param at_once: the run that makes good also makes the batch that follows
    """
    connector, db = _connector(folder), source(SEED, steps)
    purge_confirmed(db, folder)
    if not at_once:
        connector.capture()
        _equal(connector, db)
    _one_more(db)
    connector.capture()
    _equal(connector, db)
    consistent(connector)
    connector.store.close()


@pytest.mark.parametrize("steps", [SNAPSHOT, STREAM], ids=["snapshot", "stream"])
def test_a_run_killed_at_any_step_loses_and_repeats_nothing(
    forks: Forks, folder: Path, steps: int, sampled: CaseSample
) -> None:
    """Die at the first step of each kind, and at a part of all others."""
    before = folder / "before"
    _connector(before).store.close()
    if steps == STREAM:
        assert forks.run(CAPTURE, folder=str(before), seed=SEED, steps=SNAPSHOT).error == ""
    died: Counter[str] = Counter()
    for n in range(1, 1000):
        place = folder / "run"
        shutil.copytree(before, place)
        ended = forks.run(CAPTURE, folder=str(place), seed=SEED, steps=steps, at=n)
        assert ended.error == "", ended.text
        if not ended.signal:
            break
        assert ended.signal == signal.SIGKILL
        kind = (place / "died").read_text()
        if kind not in died or sampled.of(n, every=4):
            _check_recovery(place, steps, at_once=sampled.of(n // 4, every=2))
        died[kind] += 1
        shutil.rmtree(place)
    assert len(ended.result["batches"]) >= 2
    assert died.total() == ended.result["count"]
    assert set(died) >= KINDS


def test_runs_that_die_while_they_make_good_a_death_lose_nothing(forks: Forks, folder: Path) -> None:
    """Up to six deaths in a row, at steps by chance; a run that comes through has captured everything."""
    r = Random(5)
    died = []
    for n in range(12):
        place = folder / str(n)
        _connector(place).store.close()
        for i in range(6):
            steps = min(SNAPSHOT + 2 * i, LATER)
            ended = forks.run(CAPTURE, folder=str(place), seed=SEED, steps=steps, at=r.randrange(1, 60))
            assert ended.error == "", ended.text
            died.append(ended.signal)
        _check_recovery(place, LATER)
    assert died.count(signal.SIGKILL) > 40


def test_snapshots_on_demand_outlive_a_death_at_any_step(forks: Forks, folder: Path) -> None:
    """Two incremental ones, one of them over a table that is not there, and a blocking one: each is carried out, and answered."""
    before, options = folder / "before", {"incremental.snapshot.chunk.size": 2, "signal.poll.interval.ms": 50}
    connector = _connector(before)
    assert forks.run(CAPTURE, folder=str(before), seed=SEED, steps=SNAPSHOT).error == ""
    keyed = [str(t) for t, schema in source(SEED, STREAM).read_consistent_view()[1].items() if schema.key]
    signal_number = [
        snapshot(connector, *keyed, id_="all"),
        snapshot(connector, keyed[0], type="blocking", id_="whole"),
        snapshot(connector, keyed[-1], "shop.nix", id_="wrong"),
    ]
    connector.store.close()
    died: Counter[str] = Counter()
    for n in range(1, 2000, 3):
        place = folder / "run"
        shutil.copytree(before, place)
        ended = forks.run(CAPTURE, folder=str(place), seed=SEED, steps=STREAM, at=n, options=options)
        assert ended.error == "", ended.text
        if ended.signal:
            died[(place / "died").read_text()] += 1
        _check_recovery(place, STREAM)
        after = _connector(place)
        assert [signal_state(after, number)[0] for number in signal_number] == ["done", "done", "failed"]
        assert after.store.load_offset("test").offset.incremental.scans == []  # type: ignore[union-attr]
        after.store.close()
        shutil.rmtree(place)
        if not ended.signal:
            break
    assert died.total() > 10


# two runs


def test_of_two_runs_at_once_one_waits_and_nothing_is_captured_twice(forks: Forks, folder: Path) -> None:
    for n in range(4):
        folder = folder / str(n)
        connector = _connector(folder)
        runs = [
            forks.start(CAPTURE, folder=str(folder), seed=SEED, steps=STREAM, lease_s=5, lease_wait_s=30)
            for _ in range(3)
        ]
        ended = [run.wait() for run in runs]
        assert [e.error for e in ended] == ["", "", ""], ended
        assert sorted(bool(e.result["events"]) for e in ended) == [False, False, True]
        _equal(connector, source(SEED, STREAM))
        consistent(connector)


def test_of_two_runs_at_once_one_is_refused_if_it_will_not_wait(forks: Forks, folder: Path) -> None:
    connector = _connector(folder)
    first = forks.start(
        CAPTURE, folder=str(folder), seed=SEED, steps=STREAM, lease_s=30, at=3, signal_=signal.SIGSTOP, only="file"
    )
    assert first.wait_until_stopped()
    second = forks.run(CAPTURE, folder=str(folder), seed=SEED, steps=STREAM, lease_wait_s=0)
    assert second.error == "LeaseHeld", second.text
    first.go_on()
    assert first.wait().error == ""
    _equal(connector, source(SEED, STREAM))
    consistent(connector)


# the zombie: a run that sleeps past its lease and wakes up


def test_a_run_that_slept_past_its_lease_fails_loudly_and_changes_nothing(
    forks: Forks, folder: Path, sampled: CaseSample
) -> None:
    """It sleeps at each step of its second batch or so, while another run takes over and commits."""
    before = folder / "before"
    _connector(before).store.close()
    assert forks.run(CAPTURE, folder=str(before), seed=SEED, steps=SNAPSHOT).error == ""
    epoch = _epoch(_connector(before))
    asleep: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for n in range(1, 1000):
        if not sampled.of(n, every=2):
            continue
        place = folder / str(n)
        shutil.copytree(before, place)
        zombie = forks.start(CAPTURE, folder=str(place), seed=SEED, steps=STREAM, at=n, signal_=signal.SIGSTOP)
        if not zombie.wait_until_stopped():
            assert zombie.wait().error == ""
            break
        where, connector = (place / "died").read_text(), _connector(place)
        if where == "inside transaction" or not _epoch(connector) > epoch:
            # it holds the lock on the whole sqlite database, or has no lease yet: there is nothing to take over
            zombie.go_on()
            assert zombie.wait().error == ""
            continue
        asleep[where] += 1
        db = source(SEED, STREAM)
        taken = connector.capture()
        there = connector.store.load_offset("test")
        manifests = list(connector.changelog.read_manifests("test"))
        zombie.go_on()
        ended = zombie.wait()
        failed[ended.error] += 1
        # without an error it had finished before it fell asleep, or had not yet begun and says that there was nothing
        assert ended.error or not taken.events or not ended.result["events"], (where, ended)
        assert connector.store.load_offset("test") == there
        assert list(connector.changelog.read_manifests("test")) == manifests
        _equal(connector, db)
        if n % 2:  # and a run after both finds nothing in its way
            _one_more(db)
            connector.capture()
            _equal(connector, db)
            consistent(connector)
        connector.store.close()
        shutil.rmtree(place)
    assert asleep["before create"] >= 1
    assert asleep["before transaction"] >= 2
    assert set(failed) <= {"LeaseLost", "CommitConflict", ""}
    assert failed["LeaseLost"] > 10


def _epoch(connector: Connector) -> int:
    with connector.store.database.engine.connect() as c:
        return c.scalar(sa.select(LeaseRow.epoch)) or 0


# no space


def test_a_full_disk_is_a_clear_error_and_the_next_run_goes_on(forks: Forks, folder: Path) -> None:
    connector, db = _connector(folder), source(SEED, SNAPSHOT)
    connector.capture()
    before = connector.store.load_offset("test")
    ended = forks.run(
        "tests.support.processes.crash:capture_much",
        folder=str(folder),
        seed=SEED,
        steps=SNAPSHOT,
        largest_file=400_000,
    )
    assert ended.error == "StorageFull", ended.text
    assert "The offset was not moved" in ended.text
    assert "free space or enlarge the disk" in ended.text
    assert connector.store.load_offset("test") == before
    db = source(SEED, SNAPSHOT)
    write_much(db)
    connector.capture()
    _equal(connector, db)
    consistent(connector)
