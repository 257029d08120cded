"""Facts about tables hold until their stamps change, and no longer."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.targets.database.dialects import known_structures
from airflow_provider_cdc.targets.database.dialects.known_structures import KnownStructures
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName

ORDERS, LINES = TargetTableName("orders"), TargetTableName("lines")


@pytest.fixture
def known() -> KnownStructures:
    """Two tables of which a fact is known."""
    structures = KnownStructures()
    structures.check([ORDERS, LINES], {ORDERS: "1", LINES: "1"})
    structures.keep(ORDERS, "key", ("id",))
    structures.keep(LINES, "key", ("id", "line"))
    return structures


def test_facts_of_a_table_with_the_same_stamp_are_kept(known: KnownStructures) -> None:
    known.check([ORDERS], {ORDERS: "1"})
    assert known.find(ORDERS, "key") == ("id",)


@pytest.mark.parametrize("stamps", [{ORDERS: "2"}, {}])
def test_facts_of_a_table_that_has_changed_or_is_gone_are_dropped(
    known: KnownStructures, stamps: dict[TargetTableName, str]
) -> None:
    known.check([ORDERS], stamps)
    assert known.find(ORDERS, "key") is None
    assert known.find(LINES, "key") == ("id", "line")


def test_without_a_stamp_nothing_is_kept() -> None:
    structures = KnownStructures()
    structures.check([ORDERS], {})
    structures.keep(ORDERS, "key", ("id",))
    assert structures.find(ORDERS, "key") is None


def test_a_table_that_is_changed_keeps_no_facts_until_it_is_checked(known: KnownStructures) -> None:
    known.forget(ORDERS)
    known.keep(ORDERS, "key", ("other",))
    assert known.find(ORDERS, "key") is None


def test_an_undone_transaction_leaves_nothing_known(known: KnownStructures) -> None:
    known.clear()
    assert known.find(ORDERS, "key") is None
    assert not known.is_checked(ORDERS)


def test_a_check_holds_for_a_while(known: KnownStructures, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known.is_checked(ORDERS)
    monkeypatch.setattr(known_structures, "CHECKED_S", 0)
    assert not known.is_checked(ORDERS)


def test_a_check_of_an_earlier_round_does_not_count(known: KnownStructures) -> None:
    known.expire()
    assert not known.is_checked(ORDERS)
    assert known.find(ORDERS, "key") == ("id",)
