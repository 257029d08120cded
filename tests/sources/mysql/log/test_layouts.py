"""Transactions of all layouts, read through the whole stream: sizes around packet borders and buffers, plain and compressed, in files
of more than four gigabytes, with dumps that end where they like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.mysql.log import binlog_item_stream as streams
from airflow_provider_cdc.sources.mysql.log.binlog_item_stream import BinlogStream
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.sources.mysql import binlog as made
from tests.support.sources.mysql.binlog import Dump, MadeLog, MadeServer, StreamedTransactions

PACKET = 400
"""Length of a packet whose event continues in the next one, in these tests."""


def read(
    server: MadeServer,
    start: MySqlPosition,
    until: MySqlPosition | None,
    monkeypatch: pytest.MonkeyPatch,
    **options: Any,
) -> StreamedTransactions:
    monkeypatch.setattr(streams, "BinlogConnection", server.connection)
    stream = BinlogStream(made.CONFIG, server.server, start, until, made.tables(), made.CATALOG, **options)
    return StreamedTransactions().take(stream.read_items())


Statement = Callable[[MadeLog], list[tuple[int, int]]]
_SIZES = st.one_of(
    st.integers(0, 20), st.builds(lambda n, off: max(0, n * PACKET + off), st.integers(1, 12), st.integers(-130, 10))
)


def _statements(gaps: st.SearchStrategy[int]) -> st.SearchStrategy[Statement]:
    ids = st.integers(1, 1000)
    return st.one_of(
        st.builds(lambda id_, size, table, gap: made.insert(id_, size, table_id=table, gap=gap), ids, _SIZES, st.integers(100, 102), gaps),
        st.builds(made.update, ids, _SIZES, _SIZES),
        st.builds(made.annotate, _SIZES),
    )  # fmt: skip


_NO_GAPS = st.just(0)


@st.composite
def logs(draw: st.DrawFn, *, gaps: st.SearchStrategy[int] = _NO_GAPS) -> MadeLog:
    """A log of some transactions in some files."""
    log = MadeLog(gtids=draw(st.booleans()), checksums=draw(st.booleans()))
    for _ in range(draw(st.integers(1, 8))):
        statements = draw(st.lists(_statements(gaps), max_size=6))
        form = draw(st.sampled_from(["plain", "plain", "compressed", "stored", "rotate"]))
        if form == "rotate":
            log.rotate()
        elif form == "plain":
            log.transaction(*statements)
        else:
            log.compressed(*statements, compress=form == "compressed")
    return log


def _rows(log: MadeLog, after: tuple[int, int] = (0, 4), upto: tuple[int, int] = (1 << 30, 0)) -> list[tuple[int, int]]:
    return [row for place, found in log.committed if after < place <= upto for row in found]


@settings(max_examples=40)
@given(
    log=logs(),
    buffer=st.sampled_from([256, 1 << 11, 1 << 16]),
    pieces=st.lists(st.integers(1, 3000), min_size=1, max_size=3),
)
def test_every_row_of_every_layout_comes_once(log: MadeLog, buffer: int, pieces: list[int]) -> None:
    """H1a, H1b, R25: GTIDs, table maps, statements and rows on either side of packet borders, in every order of sizes."""
    server = MadeServer(log, largest=PACKET, buffer=buffer, pieces=pieces)
    with pytest.MonkeyPatch.context() as patched:
        applied = read(server, log.position((0, 4)), log.position(), patched)
    assert applied.error is None
    assert applied.rows == _rows(log)
    assert applied.positions[-1].has_reached(log.position())


# -- the end -------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    log=logs(),
    dumps=st.lists(st.builds(Dump, st.one_of(st.none(), st.integers(0, 12)), st.sampled_from([False, False, False, True])), max_size=5),
    buffer=st.sampled_from([256, 1 << 12]),
    more=st.booleans(),
)  # fmt: skip
def test_a_dump_that_ends_early_loses_nothing(log: MadeLog, dumps: list[Dump], buffer: int, more: bool) -> None:
    """H2(2): however a server ends its dumps, each row comes once, nothing after ``until``, and no position is beyond what was sent."""
    server, start, until = MadeServer(log, dumps, largest=PACKET, buffer=buffer), log.position((0, 4)), log.position()
    upto = log.end
    if more:
        log.transaction(made.insert(5000, 10))
        log.rotate()
    rows: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patched:
        while True:
            applied = read(server, start, until, patched)
            rows += applied.rows
            for position in applied.positions:
                assert _place_of(log, position) <= max(server.sent, _place_of(log, start)), "beyond what was sent"
            start = applied.positions[-1] if applied.positions else start
            if applied.error is None:
                break
    assert rows == _rows(log, upto=upto)
    assert start.has_reached(until)


@pytest.mark.parametrize("gtids", [False, True])
def test_a_log_that_is_ahead_of_what_is_sent_is_waited_for_and_then_an_error(
    gtids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2(1): ``SHOW BINARY LOG STATUS`` counts a transaction that waits for the disk; the dump does not have it yet."""
    log = MadeLog(gtids=gtids)
    log.transaction(made.insert(1, 10))
    sent = log.end
    before = sum(len(file.events) for file in log.files)
    log.transaction(made.insert(2, 10))
    start, until = log.position((0, 4)), log.position()
    monkeypatch.setattr(streams, "PATIENCE_S", 0.1)
    never = MadeServer(log, [Dump(before)] + [Dump(0)] * 1000)
    applied = read(never, start, until, monkeypatch)
    assert applied.error is not None
    assert "repeatedly ended its log before" in str(applied.error.message)
    assert applied.rows == [(1, 10)]
    assert _place_of(log, applied.positions[-1]) == sent, "the position is where the last event ended"
    later = MadeServer(log, [Dump(0), Dump(0)])
    assert read(later, applied.positions[-1], until, monkeypatch).rows == [(2, 10)]


def test_a_transaction_that_is_not_executed_yet_is_left_to_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """H2(1) GTID: the server has not executed it when the run begins; the position stays before it, so that the next run finds it."""
    log = MadeLog(gtids=True)
    log.transaction(made.insert(1, 10))
    executed, before = f"{made.SERVER_UUID}:1", sum(len(file.events) for file in log.files)
    log.transaction(made.insert(2, 10))
    server = MadeServer(log, [Dump(before)] + [Dump(0)] * 1000)
    applied = read(server, log.position((0, 4)), log.position(gtids=executed), monkeypatch)
    assert (applied.error, applied.rows) == (None, [(1, 10)])
    assert not applied.positions[-1].has_reached(log.position(gtids=f"{made.SERVER_UUID}:1-2"))
    assert read(MadeServer(log), applied.positions[-1], log.position(), monkeypatch).rows == [(2, 10)]


@pytest.mark.parametrize("buffer", [256, 1 << 12])
@pytest.mark.parametrize("gtids", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_a_file_that_a_crash_has_cut_is_left_for_the_next_one(
    inside: bool, gtids: bool, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position does not move to an offset that the file does not have any more: the next run would call that a lost position. Of a
    transaction that the server was writing, nothing is captured: it has rolled it back.

    ``Format_description_log_event::do_apply_event`` of both servers: "a transaction never spans on 2 or more binlogs: if we have an
    active transaction at this point, the master died while writing the transaction".
    """
    log = MadeLog(gtids=gtids)
    log.transaction(made.insert(1, 10))
    whole = log.end
    if inside:
        log.transaction(*(made.insert(n, 100) for n in range(2, 12)))
        del log.files[0].events[-1], log.committed[-1]
    until = log.position((0, log.end[1] + 1000))  # nor does the file end with a ROTATE
    log.files.append(made.File("binlog.000002", 1_700_000_001))
    log.write(made.code.FORMAT_DESCRIPTION, log._format())
    log.transaction(made.insert(20, 10))
    server = MadeServer(log, largest=PACKET, buffer=buffer)
    applied = read(server, log.position((0, 4)), until, monkeypatch)
    assert (applied.error, applied.rows) == (None, [(1, 10)])
    assert _place_of(log, applied.positions[-1]) == (1, 4)
    assert f"{made.SERVER_UUID}:2" not in applied.positions[-1].gtids
    assert whole < (1, 4)
    assert read(server, applied.positions[-1], log.position(), monkeypatch).rows == [(20, 10)]
    both = read(server, log.position((0, 4)), log.position(), monkeypatch)
    assert (both.error, both.rows) == (None, [(1, 10), (20, 10)])


def _place_of(log: MadeLog, position: MySqlPosition) -> tuple[int, int]:
    return [file.name for file in log.files].index(position.file), position.pos


# -- four gigabytes ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    log=logs(gaps=st.one_of(st.just(0), st.integers(1 << 29, (1 << 32) - (1 << 16)))),
    buffer=st.sampled_from([256, 1 << 12]),
)
def test_positions_beyond_four_gigabytes(log: MadeLog, buffer: int) -> None:
    """L3: headers have the low 32 bits of an offset. Events that were not sent lie between those that were."""
    with pytest.MonkeyPatch.context() as patched:
        applied = read(MadeServer(log, largest=PACKET, buffer=buffer), log.position((0, 4)), log.position(), patched)
    assert applied.error is None
    assert applied.rows == _rows(log)
    assert applied.positions[-1] == log.position(gtids=applied.positions[-1].gtids)
    starts = [e.start for file in log.files for e in file.events if e.data[4] in (30, 31, 40)]
    assert set(applied.places) <= set(starts)
