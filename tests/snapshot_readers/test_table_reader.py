"""Readers that lose their connection, and the key that signs their messages."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.connector import build_signing_key
from airflow_provider_cdc.core.errors import AccessDenied, CdcError, SourceUnavailable
from airflow_provider_cdc.snapshot_readers import table_reader
from airflow_provider_cdc.snapshot_readers.table_reader import ReaderSettings, run_reader


class _Joins:
    """The joins of a reader, each with an error or a number of rows."""

    def __init__(self, *ends: CdcError | int) -> None:
        self._ends, self.count = ends, 0

    def __call__(self, settings: ReaderSettings, number: int) -> int:
        end = self._ends[self.count]
        self.count += 1
        if isinstance(end, CdcError):
            raise end
        return end


LOST = SourceUnavailable("The connection was lost.")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "_JOIN_AGAIN_S", 0.0)


@pytest.mark.parametrize("source", ["oracle", "mongodb"])
def test_a_reader_that_loses_its_connection_joins_a_view_again_that_may_be_joined_late(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = _Joins(LOST, LOST, 7)
    monkeypatch.setattr(table_reader, "_join", joins)
    assert run_reader(ReaderSettings("/log", "shop", source, "1"), 0) == 7


@pytest.mark.parametrize(
    ("source", "ends", "count"),
    [("mariadb", [LOST, 7], 1), ("oracle", [LOST] * 9, 4), ("oracle", [AccessDenied("The password is wrong."), 7], 1)],
)
def test_a_reader_does_not_join_again_where_that_is_of_no_use(
    source: str, ends: list[CdcError | int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = _Joins(*ends)
    monkeypatch.setattr(table_reader, "_join", joins)
    with pytest.raises(CdcError):
        run_reader(ReaderSettings("/log", "shop", source, "1"), 0)
    assert joins.count == count


@pytest.mark.parametrize(
    ("source", "name", "one", "other"),
    [
        ("oracle", "database.password", "a", "b"),
        ("oracle", "database.url", "jdbc:oracle:thin:scott/a@//db/ORCL", "jdbc:oracle:thin:scott/b@//db/ORCL"),
        ("mongodb", "mongodb.connection.string", "mongodb://cdc:a@db/?tls=true", "mongodb://cdc:b@db/?tls=true"),
    ],
)
def test_messages_are_signed_with_the_secret_of_the_source_wherever_it_is(
    source: str, name: str, one: str, other: str
) -> None:
    """Write access to the storage is no way to run queries at the source."""
    keys = {build_signing_key(source, {name: value, "database.user": "cdc"}) for value in (one, other)}
    assert len(keys) == 2
