"""Tables know whose batches they have: another change log, one that was begun again or put back to an earlier state, is refused whatever its numbers say."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from airflow_provider_cdc.core.errors import ChangeLogDamaged
from tests.cases.log_life import ConnectorSimulation, InSqlite
from tests.support.pytest_runs.sampled import CaseSample


def _life(tmp_path: Path, seed: int = 0) -> ConnectorSimulation:
    return ConnectorSimulation(tmp_path, Random(seed), InSqlite(tmp_path))


def _rows(life: ConnectorSimulation, *rows: tuple[int, int], table: str = "s.small") -> None:
    with life.db.transaction() as t:
        for row in life.db.copy_rows(table):
            t.delete(table, row)
        for id_, v in rows:
            t.insert(table, {"id": id_, "v": v})


def _check_equal(life: ConnectorSimulation) -> None:
    assert life.capture()
    assert life.apply() == ""
    assert {t: life.made.rows().get(t, []) for t in life.made.TABLES} == life.wanted()


def test_a_log_that_was_deleted_and_begun_again_is_refused_from_its_first_batch_on(tmp_path: Path) -> None:
    """# A4 (1): all tables stand at batch 1, and so does the new log."""
    life = _life(tmp_path)
    _rows(life, (1, 1), (2, 2))
    _check_equal(life)
    life.delete(with_changelog=True)
    _rows(life, (2, 20), (3, 3))
    assert life.capture()
    assert "built from another change log" in life.apply()
    life.mended()
    _rows(life, (4, 4))
    _check_equal(life)


def test_a_log_that_was_begun_again_is_refused_when_it_has_come_to_the_numbers_of_the_tables(tmp_path: Path) -> None:
    """# A4 (2): the error does not end by itself."""
    life = _life(tmp_path)
    for n in range(3):
        _rows(life, (n, n))
        _check_equal(life)
    life.delete(with_changelog=True)
    for n in range(5):
        _rows(life, (n, n + 50))
        assert life.capture()
        assert "another change log" in life.apply()
    life.mended()


@pytest.mark.parametrize("state", [True, False], ids=["with its state", "alone"])
def test_a_log_that_was_put_back_is_refused_when_it_has_come_to_the_numbers_of_the_tables(
    tmp_path: Path, state: bool
) -> None:
    """# A4 (3): the batches between the backup and the restore are others now."""
    life = _life(tmp_path)
    _rows(life, (1, 1))
    _check_equal(life)
    life.back_up()
    for n in range(3):
        _rows(life, (n, n))
        _check_equal(life)
    life.restore(log=True, state=state)
    if not state:
        assert not life.capture()
        life.delete(with_changelog=False)  # as the error says
    for n in range(5):
        _rows(life, (n, n + 50))
        assert life.capture()
        error = life.apply()
        assert "another change log" in error, (n, error)
    life.mended()


def test_tables_that_stand_before_what_was_put_back_go_on(tmp_path: Path) -> None:
    """# A4: nothing is lost, and nothing is refused."""
    life = _life(tmp_path)
    _rows(life, (1, 1))
    _check_equal(life)
    _rows(life, (2, 2))
    assert life.capture()
    life.back_up()
    _rows(life, (3, 3))
    assert life.capture()
    life.restore(log=True, state=True)
    _rows(life, (4, 4))
    _check_equal(life)


@pytest.mark.parametrize("what", ["log", "state"])
def test_a_capture_does_not_go_on_in_a_log_that_is_not_its_own(tmp_path: Path, what: str) -> None:
    """# A4: state and change log are of each other, whichever of them was put back; the command that is named helps."""
    life = _life(tmp_path)
    _rows(life, (1, 1))
    _check_equal(life)
    life.back_up()
    life.delete(with_changelog=True)
    _rows(life, (2, 2))
    assert life.capture()
    life.restore(log=what == "log", state=what == "state")
    _rows(life, (3, 3))
    with pytest.raises(ChangeLogDamaged, match="belongs to another change log") as refused:
        life.connector.capture()
    assert "run `airflow cdc delete test`" in str(refused.value)
    life.mended()


def test_a_log_that_is_replaced_below_a_run_is_found_by_readers(tmp_path: Path) -> None:
    """# A4: a batch that follows one of another log is no batch of either."""
    life, other = _life(tmp_path / "a"), _life(tmp_path / "b")
    for one in (life, other):
        _rows(one, (1, 1))
        _check_equal(one)
        _rows(one, (2, 2))
        assert one.capture()
    mine, theirs = (one.connector.changelog.path_of("test", 2) for one in (life, other))
    Path(mine).write_bytes(Path(theirs).read_bytes())
    with pytest.raises(ChangeLogDamaged, match="Batch 2 belongs to another change log"):
        list(life.connector.changelog.read_manifests("test"))


def test_no_run_is_green_while_rows_differ_whatever_happens_to_logs_and_states(
    tmp_path: Path, sampled: CaseSample
) -> None:
    """# A4: random lives of a change log, its state and its tables."""
    seeds = range(60) if sampled.all else sampled.random("lives").sample(range(10**6), 3)
    for seed in seeds:
        life = _life(tmp_path / str(seed), seed)
        try:
            for _ in range(25):
                life.step()
            life.mended()
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e
