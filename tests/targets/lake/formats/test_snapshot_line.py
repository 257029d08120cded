"""The newest marker of an application is found as by a walk through all snapshots, and each snapshot is read once for all applications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.targets.lake.formats.iceberg.snapshot_line import LineMarker, SnapshotLine, SnapshotSummary

APPS = ("a", "b", "c")


def _marked(app: str, batch: int = 1) -> SnapshotSummary:
    return SnapshotSummary({app: batch})


class _Snapshots:
    """Snapshots by number, which are counted when they are read."""

    def __init__(self, summaries: list[SnapshotSummary]) -> None:
        self.summaries, self.reads = summaries, Counter[int]()

    @property
    def ids(self) -> list[int]:
        return list(range(len(self.summaries)))[::-1]

    def read(self, snapshot: int) -> SnapshotSummary:
        self.reads[snapshot] += 1
        return self.summaries[snapshot]


def _walk(apps: Collection[str], ids: list[int], snapshots: _Snapshots) -> dict[str, LineMarker]:
    markers, picked = dict[str, LineMarker](), None
    for snapshot in ids:
        summary = snapshots.summaries[snapshot]
        for app, batch in summary.batches.items():
            markers.setdefault(app, LineMarker(batch, picked))
        if summary.cherry_picked and picked is None:
            picked = snapshot
    return {app: marker for app, marker in markers.items() if app in apps}


def test_each_snapshot_is_read_once_for_all_topics_of_a_table() -> None:
    idle = [f"idle {number}" for number in range(20)]
    snapshots = _Snapshots([_marked(app) for app in idle] + [_marked("busy", n) for n in range(500)])
    line = SnapshotLine()
    for _ in idle:
        markers, _ = line.find_markers([*idle, "busy"], snapshots.ids, snapshots.read)
        assert markers == {app: LineMarker(1) for app in idle} | {"busy": LineMarker(499)}
    assert set(snapshots.reads.values()) == {1}
    snapshots.reads.clear()
    snapshots.summaries += [_marked("busy", 500), _marked("idle 3", 2)]
    markers, _ = line.find_markers([*idle, "busy"], snapshots.ids, snapshots.read)
    assert (markers["busy"], markers["idle 3"], markers["idle 4"]) == (LineMarker(500), LineMarker(2), LineMarker(1))
    assert snapshots.reads == {520: 1, 521: 1}


def test_no_snapshots_before_the_last_marker_are_read() -> None:
    snapshots = _Snapshots([_marked("a", n) for n in range(50)] + [_marked("b"), SnapshotSummary()])
    markers, _ = SnapshotLine().find_markers(["a", "b"], snapshots.ids, snapshots.read)
    assert markers == {"a": LineMarker(49), "b": LineMarker(1)}
    assert snapshots.reads.total() == 3


def test_snapshots_whose_markers_have_expired_are_not_read_again() -> None:
    snapshots = _Snapshots([_marked("idle"), *(_marked("busy", n) for n in range(50))])
    line = SnapshotLine()
    line.find_markers(["idle", "busy"], snapshots.ids, snapshots.read)
    snapshots.reads.clear()
    for kept in (40, 10):
        assert line.find_markers(["idle", "busy"], snapshots.ids[:kept], snapshots.read)[0] == {"busy": LineMarker(49)}
    assert not snapshots.reads


_SUMMARIES = st.one_of(
    st.sampled_from(APPS).flatmap(lambda app: st.integers(1, 9).map(lambda batch: _marked(app, batch))),
    st.just(SnapshotSummary()),
    st.just(SnapshotSummary(cherry_picked=True)),
)
_LOOKS = st.tuples(
    st.lists(_SUMMARIES, max_size=4), st.integers(0, 6), st.integers(0, 4), st.sets(st.sampled_from(APPS))
)


@given(st.lists(_LOOKS, max_size=8))
def test_what_is_found_is_what_a_walk_finds(
    looks: list[tuple[list[SnapshotSummary], int, int, set[str]]],
) -> None:
    """Snapshots are added, expire, and are left by rollbacks, between the looks."""
    snapshots, line, chain = _Snapshots([]), SnapshotLine(), list[int]()
    for added, expired, back, apps in looks:
        chain = chain[back:]
        for summary in added:
            chain.insert(0, len(snapshots.summaries))
            snapshots.summaries.append(summary)
        chain = chain[: max(len(chain) - expired, 1)]
        markers, picked = line.find_markers(apps, chain, snapshots.read)
        wanted = apps or APPS
        assert {app: m for app, m in markers.items() if app in wanted} == _walk(wanted, chain, snapshots)
        if len(markers.keys() & set(wanted)) < len(wanted):
            assert picked == next((s for s in chain if snapshots.summaries[s].cherry_picked), None)
