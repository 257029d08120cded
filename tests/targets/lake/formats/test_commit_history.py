"""The last commit of an application is found as by a walk through all commits, and each commit is read once for all applications."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.targets.lake.formats.delta.commit_history import (
    WRITER,
    Actions,
    CommitHistory,
    LastCommit,
    follow_operations,
)

APPS = ("a", "b", "c")


def _commit(app: str = "", batch: int = 0, operation: str = "MERGE", **parameters: Any) -> Actions:
    info = {"operation": operation, "operationParameters": parameters, "userMetadata": f'{{"{WRITER}": "w{batch}"}}'}
    txn = [{"txn": {"appId": app, "version": batch}}] if app else []
    return [{"commitInfo": info}, *txn]


class _Log:
    """The log of a table, which counts how often each version is read."""

    def __init__(self, commits: list[Actions], first: int = 0) -> None:
        self.commits, self.first, self.reads = commits, first, Counter[int]()

    @property
    def newest(self) -> int:
        return len(self.commits) - 1

    def read(self, version: int) -> Actions:
        self.reads[version] += 1
        return self.commits[version] if self.first <= version < len(self.commits) else []


def test_each_commit_is_read_once_for_all_topics_of_a_table() -> None:
    log = _Log([_commit(f"idle {number}", 1) for number in range(20)] + [_commit("busy", n) for n in range(500)])
    history = CommitHistory()
    for number in range(20):
        commit, back = history.find_last_commit(f"idle {number}", log.newest, log.read)
        assert (commit, back) == (LastCommit(number, (1,), "w1"), "")
    assert set(log.reads.values()) == {1}


def test_a_later_look_reads_later_commits_only() -> None:
    log, history = _Log([_commit("idle", 1), *(_commit("busy", n) for n in range(500))]), CommitHistory()
    history.find_last_commit("idle", log.newest, log.read)
    log.reads.clear()
    log.commits += [_commit("busy", 500), _commit("busy", 501)]
    assert history.find_last_commit("idle", log.newest, log.read) == (LastCommit(0, (1,), "w1"), "")
    assert history.find_last_commit("busy", log.newest, log.read) == (LastCommit(502, (501,), "w501"), "")
    assert log.reads == {501: 1, 502: 1}


def test_a_busy_topic_reads_no_commits_before_its_own() -> None:
    log, history = _Log([_commit("idle", n) for n in range(500)] + [_commit("busy", 1)]), CommitHistory()
    for number in range(5):
        assert history.find_last_commit("busy", log.newest, log.read)[0] is not None
        log.commits += [_commit("idle", 500 + n) for n in range(50)] + [_commit("busy", 2 + number)]
    assert log.reads.total() == 5


def test_a_snapshot_that_is_older_than_another_thread_s_reads_nothing_again() -> None:
    log, history = _Log([_commit("a", 1), *(_commit("busy", n) for n in range(50))]), CommitHistory()
    history.find_last_commit("a", log.newest, log.read)
    log.reads.clear()
    assert history.find_last_commit("a", log.newest - 1, log.read) == (LastCommit(0, (1,), "w1"), "")
    assert log.reads == {log.newest: 1}


def test_an_older_copy_of_the_table_is_read_again() -> None:
    log, history = _Log([_commit("a", n) for n in range(5)]), CommitHistory()
    history.find_last_commit("a", log.newest, log.read)
    older = _Log([_commit("a", 0), _commit("a", 1)])
    assert history.find_last_commit("a", older.newest, older.read) == (LastCommit(1, (1,), "w1"), "")


def test_a_restore_after_the_last_commit_is_found() -> None:
    log, history = _Log([_commit("a", 1), _commit("b", 1), _commit("a", 2)]), CommitHistory()
    history.find_last_commit("a", log.newest, log.read)
    log.commits += [_commit(operation="RESTORE", version="1"), _commit("b", 2)]
    assert history.find_last_commit("a", log.newest, log.read) == (LastCommit(0, (1,), "w1"), "RESTORE in version 3")
    assert history.find_last_commit("b", log.newest, log.read) == (LastCommit(4, (2,), "w2"), "")


@st.composite
def _commits(draw: st.DrawFn) -> list[Actions]:
    commits = [_commit(operation="CREATE TABLE")]
    for number in range(1, draw(st.integers(1, 14))):
        match draw(st.integers(0, 9)):
            case 0:
                to = draw(st.integers(0, number - 1))
                by_time = draw(st.booleans())
                parameters: dict[str, Any] = {} if by_time else {"version": str(to)}
                commits.append(_commit(operation="RESTORE", **parameters))
            case 1:
                commits.append(_commit(draw(st.sampled_from(["", "a"])), number, operation="REPLACE TABLE"))
            case 2:
                commits.append(_commit(operation="OPTIMIZE"))
            case _:
                commits.append(_commit(draw(st.sampled_from(APPS)), number))
    return commits


@given(_commits(), st.lists(st.tuples(st.sampled_from(APPS), st.integers(0, 14)), max_size=12), st.integers(0, 6))
def test_what_is_found_is_what_a_walk_finds(commits: list[Actions], looks: list[tuple[str, int]], first: int) -> None:
    history, ordered = CommitHistory(), sorted(looks, key=lambda look: look[1])
    for app, until in ordered:
        log = _Log(commits[: until + 1], min(first, ordered[0][1]))
        assert history.find_last_commit(app, log.newest, log.read) == follow_operations(app, log.newest, log.read)
