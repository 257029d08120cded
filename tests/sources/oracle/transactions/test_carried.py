"""Open transactions that are carried over from run to run: the same events as without that, wherever runs end and whatever becomes of the
files; and what was mined is not mined again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.sources.oracle.transactions.carried_runs import ConnectorRuns, RandomTransactions

STEPS = 700


def _draw_window_ends(story: RandomTransactions, seed: int) -> list[int]:
    """SCNs at which windows end."""
    r = random.Random(seed)
    last = story.rows[-1]["scn"]
    return sorted({*r.sample(range(story.rows[0]["scn"], last), 40), last})


def _run_uninterrupted(
    folder: Path, story: RandomTransactions, ends: list[int], hidden: int = 0, **properties: Any
) -> ConnectorRuns:
    runs = ConnectorRuns(folder, story, ends, properties, hidden)
    runs.run(ends[-1])
    return runs


def _left(runs: ConnectorRuns) -> set[str]:
    return set(runs.files.list_sizes())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(16))
def test_runs_that_end_anywhere_give_the_events_of_one_run_and_mine_each_row_once(seed: int, tmp_path: Path) -> None:
    """DDL also concerns tables with changes that wait: each row is read with the schema that was in force at its SCN."""
    story = RandomTransactions(seed, STEPS, over=True)
    ends = _draw_window_ends(story, seed)
    runs = ConnectorRuns(tmp_path / "many", story, ends)
    r = random.Random(seed)
    for end in [*sorted(r.sample(ends[:-1], 20)), ends[-1]]:
        runs.run(end, seed=end)
    assert runs.events == story.events == _run_uninterrupted(tmp_path / "one", story, ends).events
    assert story.statements > 3
    assert runs.restored > 10
    # a transaction of which the log has shown no more than its START is not carried over
    assert len(story.rows) <= runs.mined <= len(story.rows) + 1
    assert (runs.carried, _left(runs), runs.lost) == (None, set(), 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_redo_in_private_strands_is_captured_when_it_reaches_the_log(seed: int, tmp_path: Path) -> None:
    """Its rows have SCNs that windows before have covered."""
    story = RandomTransactions(seed, STEPS)
    ends = _draw_window_ends(story, seed)
    assert _run_uninterrupted(tmp_path / "one", story, ends, hidden=seed + 1).events == story.events
    runs = ConnectorRuns(tmp_path / "many", story, ends, hidden=seed + 1)
    for end in [*sorted(random.Random(seed).sample(ends[:-1], 20)), ends[-1]]:
        runs.run(end, seed=end)
        assert runs.events == story.events[: len(runs.events)]
    assert runs.events == story.events
    assert runs.mined < 3 * len(story.rows)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_runs_that_are_killed_anywhere_give_the_events_of_one_run(seed: int, tmp_path: Path) -> None:
    story = RandomTransactions(seed, STEPS)
    ends = _draw_window_ends(story, seed)
    runs = ConnectorRuns(tmp_path / "many", story, ends, hidden=seed % 4)
    r = random.Random(seed)
    killed = 0
    for end in [*sorted(r.sample(ends[:-1], 25)), ends[-1]]:
        die = r.randint(0, 12) if r.random() < 0.7 else None
        runs.run(end, die=die, seed=end)
        killed += die is not None
        assert runs.events == story.events[: len(runs.events)]
    runs.run(ends[-1])
    assert runs.events == story.events
    assert killed > 10
    assert runs.restored > 8
    assert runs.mined < 6 * len(story.rows)
    runs.run(ends[-1])  # sweeps what a killed one may have left
    assert (runs.carried, _left(runs), runs.lost) == (None, set(), 0)


DAMAGE = ("delete a file", "delete all", "cut", "flip", "release")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_lost_or_damaged_is_mined_again(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    story = RandomTransactions(seed, STEPS)
    ends = _draw_window_ends(story, seed)
    runs = ConnectorRuns(tmp_path / "many", story, ends, hidden=seed % 4)
    r = random.Random(seed)
    done = 0
    for end in [*sorted(r.sample(ends[:-1], 25)), ends[-1]]:
        if runs.carried is not None and r.random() < 0.5:
            done += 1
            _damage(runs, r.choice(DAMAGE), r)
        runs.run(end, seed=end, die=r.randint(0, 12) if r.random() < 0.2 else None)
        assert runs.events == story.events[: len(runs.events)]
    runs.run(ends[-1])
    assert runs.events == story.events
    assert done > 5
    assert runs.lost > 2
    assert caplog.text.count("transactions cannot be used") == runs.lost
    runs.run(ends[-1])
    assert (runs.carried, _left(runs)) == (None, set())


def _damage(runs: ConnectorRuns, how: str, r: random.Random) -> None:
    if how == "release":
        runs.release += "1"
        return
    files = sorted(p for p in (runs.folder / "c" / "carried").iterdir())
    for file in files if how == "delete all" else [r.choice(files)]:
        match how:
            case "cut":
                file.write_bytes(file.read_bytes()[:-1])
            case "flip":
                data = bytearray(file.read_bytes())
                data[r.randrange(len(data))] ^= 0x10
                file.write_bytes(data)
            case _:
                file.unlink()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_a_transaction_is_given_up_at_its_age_whatever_runs_there_are(seed: int, tmp_path: Path) -> None:
    story = RandomTransactions(seed, STEPS)
    ends = _draw_window_ends(story, seed)
    retention = {"log.mining.transaction.retention.ms": 200}
    one = _run_uninterrupted(tmp_path / "one", story, ends, **retention)
    assert 0 < len(one.events) < len(story.events)
    runs = ConnectorRuns(tmp_path / "many", story, ends, retention)
    for end in ends:
        runs.run(end, seed=end)
    assert runs.events == one.events
    assert runs.position.given_up == one.position.given_up
    # a transaction of which the log has shown no more than its START is not carried over
    assert len(story.rows) <= runs.mined <= len(story.rows) + 1


@pytest.mark.parametrize("seed", range(3))
def test_no_more_is_carried_than_may_be(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    most = 6_000
    story = RandomTransactions(seed, STEPS)
    ends = _draw_window_ends(story, seed)
    runs = ConnectorRuns(tmp_path, story, ends, {"log.mining.buffer.carry.max.bytes": most})
    for end in ends:
        runs.run(end, seed=end)
        sizes = runs.files.list_sizes()
        assert sum(size for name, size in sizes.items() if name.endswith(".rows")) <= most
    assert runs.events == story.events
    assert "exceed log.mining.buffer.carry.max.bytes (6,000 bytes)" in caplog.text
    assert len(story.rows) < runs.mined < 20 * len(story.rows)
    assert (runs.carried, _left(runs)) == (None, set())


def test_nothing_is_carried_if_nothing_may_be(tmp_path: Path) -> None:
    story = RandomTransactions(1, STEPS)
    ends = _draw_window_ends(story, 1)
    runs = ConnectorRuns(tmp_path, story, ends)
    for end in ends[:20]:
        runs.run(end)
    assert runs.carried is not None
    runs.config = runs.config.model_copy(update={"log_mining_buffer_carry_max_bytes": 0})
    runs.run(ends[20])
    assert (runs.carried, _left(runs)) == (None, set())
    for end in ends[21:]:
        runs.run(end)
        assert _left(runs) == set()
    assert runs.events == story.events
