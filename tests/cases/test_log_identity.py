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


def _rows(simulation: ConnectorSimulation, *rows: tuple[int, int], table: str = "s.small") -> None:
    with simulation.db.transaction() as t:
        for row in simulation.db.copy_rows(table):
            t.delete(table, row)
        for id_, v in rows:
            t.insert(table, {"id": id_, "v": v})


def _check_equal(simulation: ConnectorSimulation) -> None:
    assert simulation.capture()
    assert simulation.apply() == ""
    assert {t: simulation.made.rows().get(t, []) for t in simulation.made.TABLES} == simulation.wanted()


def test_a_log_that_was_deleted_and_begun_again_is_refused_from_its_first_batch_on(tmp_path: Path) -> None:
    """# A4 (1): all tables stand at batch 1, and so does the new log."""
    simulation = _life(tmp_path)
    _rows(simulation, (1, 1), (2, 2))
    _check_equal(simulation)
    simulation.delete(with_changelog=True)
    _rows(simulation, (2, 20), (3, 3))
    assert simulation.capture()
    assert "built from another change log" in simulation.apply()
    simulation.mended()
    _rows(simulation, (4, 4))
    _check_equal(simulation)


def test_a_log_that_was_begun_again_is_refused_when_it_has_come_to_the_numbers_of_the_tables(tmp_path: Path) -> None:
    """# A4 (2): the error does not end by itself."""
    simulation = _life(tmp_path)
    for n in range(3):
        _rows(simulation, (n, n))
        _check_equal(simulation)
    simulation.delete(with_changelog=True)
    for n in range(5):
        _rows(simulation, (n, n + 50))
        assert simulation.capture()
        assert "another change log" in simulation.apply()
    simulation.mended()


@pytest.mark.parametrize("state", [True, False], ids=["with its state", "alone"])
def test_a_log_that_was_put_back_is_refused_when_it_has_come_to_the_numbers_of_the_tables(
    tmp_path: Path, state: bool
) -> None:
    """# A4 (3): the batches between the backup and the restore are others now."""
    simulation = _life(tmp_path)
    _rows(simulation, (1, 1))
    _check_equal(simulation)
    simulation.back_up()
    for n in range(3):
        _rows(simulation, (n, n))
        _check_equal(simulation)
    simulation.restore(log=True, state=state)
    if not state:
        assert not simulation.capture()
        simulation.delete(with_changelog=False)  # as the error says
    for n in range(5):
        _rows(simulation, (n, n + 50))
        assert simulation.capture()
        error = simulation.apply()
        assert "another change log" in error, (n, error)
    simulation.mended()


def test_tables_that_stand_before_what_was_put_back_go_on(tmp_path: Path) -> None:
    """# A4: nothing is lost, and nothing is refused."""
    simulation = _life(tmp_path)
    _rows(simulation, (1, 1))
    _check_equal(simulation)
    _rows(simulation, (2, 2))
    assert simulation.capture()
    simulation.back_up()
    _rows(simulation, (3, 3))
    assert simulation.capture()
    simulation.restore(log=True, state=True)
    _rows(simulation, (4, 4))
    _check_equal(simulation)


@pytest.mark.parametrize("what", ["log", "state"])
def test_a_capture_does_not_go_on_in_a_log_that_is_not_its_own(tmp_path: Path, what: str) -> None:
    """# A4: state and change log are of each other, whichever of them was put back; the command that is named helps."""
    simulation = _life(tmp_path)
    _rows(simulation, (1, 1))
    _check_equal(simulation)
    simulation.back_up()
    simulation.delete(with_changelog=True)
    _rows(simulation, (2, 2))
    assert simulation.capture()
    simulation.restore(log=what == "log", state=what == "state")
    _rows(simulation, (3, 3))
    with pytest.raises(ChangeLogDamaged, match="belongs to another change log") as refused:
        simulation.connector.capture()
    assert "run `airflow cdc delete test`" in str(refused.value)
    simulation.mended()


def test_a_log_that_is_replaced_below_a_run_is_found_by_readers(tmp_path: Path) -> None:
    """# A4: a batch that follows one of another log is no batch of either."""
    simulation, other = _life(tmp_path / "a"), _life(tmp_path / "b")
    for one in (simulation, other):
        _rows(one, (1, 1))
        _check_equal(one)
        _rows(one, (2, 2))
        assert one.capture()
    mine, theirs = (one.connector.changelog.path_of("test", 2) for one in (simulation, other))
    Path(mine).write_bytes(Path(theirs).read_bytes())
    with pytest.raises(ChangeLogDamaged, match="Batch 2 belongs to another change log"):
        list(simulation.connector.changelog.read_manifests("test"))


def test_no_run_is_green_while_rows_differ_whatever_happens_to_logs_and_states(
    tmp_path: Path, sampled: CaseSample
) -> None:
    """# A4: random lives of a change log, its state and its tables."""
    seeds = range(60) if sampled.all else sampled.random("lives").sample(range(10**6), 3)
    for seed in seeds:
        simulation = _life(tmp_path / str(seed), seed)
        try:
            for _ in range(25):
                simulation.step()
            simulation.mended()
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e
