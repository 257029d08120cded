"""Ids of transactions; the end of a stream by GTIDs: at the first transaction after which the set of GTIDs covers that of its end."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.gtid_sets import Gtids, MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.log import transaction_ids
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.transaction_ids import add_gtid_numbers, first_that_reaches, source_of

SOURCES = [(1, -2, 0, 0, 0, 0), (1, 2, 0, 0, 0, 0), (1, 2, int.from_bytes(b"tag", "little"), 0, 0, 0)]


def _one_by_one(gtids: Gtids, target: Gtids, numbers: np.ndarray) -> int:
    for n in range(len(numbers) + 1):
        if gtids.contains_gtids(target):  # type: ignore[arg-type]
            return n
        if n < len(numbers):
            add_gtid_numbers(gtids, numbers[n : n + 1])
    return len(numbers)


def _row(source: tuple[int, ...], number: int) -> list[int]:
    return [*source[:2], number, *source[2:]]


@given(data=st.data())
def test_a_stream_of_mysql_ends_with_the_transaction_that_completes_the_set(data: st.DataObject) -> None:
    transactions = st.tuples(st.sampled_from(SOURCES), st.integers(1, 12))
    before = data.draw(st.sets(transactions))
    log = data.draw(st.lists(st.one_of(transactions.filter(lambda t: t not in before), st.just(None)), unique_by=repr))
    expected = data.draw(st.sets(st.one_of(transactions, st.sampled_from([t for t in log if t] or [(SOURCES[0], 1)]))))
    numbers = np.array(
        [_row(*t) if t else _row(SOURCES[0], k.NO_GTID) for t in log], np.int64
    ).reshape(-1, k.GTID_FIELDS)  # fmt: skip
    gtids, target = MySqlGtids(), MySqlGtids()
    for source, number in before:
        gtids.add_interval(source_of(*source), number, number)
    for source, number in expected:
        target.add_interval(source_of(*source), number, number)
    assert first_that_reaches(gtids, target, numbers) == _one_by_one(gtids.copy(), target, numbers)


@given(data=st.data())
def test_a_stream_of_mariadb_ends_when_every_domain_is_there(data: st.DataObject) -> None:
    domains = st.dictionaries(st.integers(0, 2), st.tuples(st.integers(1, 2), st.integers(1, 6)), max_size=3)
    gtids, target = MariaDbGtids(data.draw(domains)), MariaDbGtids(data.draw(domains))
    last = {domain: number for domain, (_, number) in gtids.domains.items()}
    rows = []
    for domain, server in data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2)), max_size=20)):
        last[domain] = last.get(domain, 0) + data.draw(st.integers(1, 2))
        rows.append([domain, server, last[domain], 0, 0, 0, 0])
    numbers = np.array(rows, np.int64).reshape(-1, k.GTID_FIELDS)
    assert first_that_reaches(gtids, target, numbers) == _one_by_one(gtids.copy(), target, numbers)


@pytest.mark.parametrize("mariadb", [False, True])
@given(data=st.data())
def test_each_transaction_has_its_gtid_or_its_place_as_its_id(mariadb: bool, data: st.DataObject) -> None:
    sources = [(0, 1, 0, 0, 0, 0), (7, 2, 0, 0, 0, 0)] if mariadb else SOURCES
    log = data.draw(st.lists(st.tuples(st.sampled_from(sources), st.one_of(st.integers(1, 10**12), st.none()))))
    carried = data.draw(st.one_of(st.none(), st.just("carried")))
    numbers = np.array(
        [_row(source, k.NO_GTID if n is None else n) for source, n in log], np.int64
    ).reshape(-1, k.GTID_FIELDS)  # fmt: skip
    transactions = np.zeros((len(log), k.TX_FIELDS), np.int64)
    transactions[:, k.TX_FIRST] = np.arange(len(log))
    events = np.zeros((max(len(log), 1), k.EV_FIELDS), np.int64)
    events[:, k.EV_SIZE] = 10
    ends = 100 * np.arange(1, len(events) + 1)
    set_ = EventSet(np.empty(0, np.uint8), events, False)
    with mock.patch.object(transaction_ids, "gtid_numbers", return_value=numbers):
        columns = transaction_ids.transaction_columns(set_, transactions, ends, "log.1", carried, mariadb)
    expected = []
    for i, (source, number) in enumerate(log):
        if mariadb:
            expected.append(f"{source[0]}-{source[1]}-{k.NO_GTID if number is None else number}")
        else:
            expected.append(f"file=log.1,pos={100 * i + 90}" if number is None else f"{source_of(*source)}:{number}")
    if carried and expected:
        expected[0] = carried
    assert columns.transactions.id.type == pa.string()
    assert columns.transactions.id.to_pylist() == expected
