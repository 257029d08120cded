"""Requirements of every source after an event that cannot be read: its table is read again, and nothing else changes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.sources import load_source
from tests.sources.suite.adapter import Adapter
from tests.sources.suite.common import RunKilled, Suite, die_after, equal, start_connector

BAD = 424_242
"""The key of the row whose events cannot be read."""


def refuse_row(patch: pytest.MonkeyPatch, cls: type[Source], table: str) -> None:
    """Let a source raise an error at the events of one row, as it does at a value that it cannot read: a stand-in for such a value."""
    stream: Any = cls.stream_log

    def stream_log(self: Source, *args: Any, **options: Any) -> Iterator[Any]:
        for item in stream(self, *args, **options):
            for rows in item.rows if isinstance(item, LogBlock) else ():
                if str(rows.table.id) == table and str(BAD) in repr(rows.after.to_pylist()):
                    error = UnreadableValue("A row cannot be read.", where=table, remedy="write another one")
                    error.table = table
                    raise error
            yield item

    patch.setattr(cls, "stream_log", stream_log)


class SetAside(Suite):
    """Events that are set aside."""

    def test_an_event_is_set_aside_and_its_table_read_again_wherever_a_run_ends(
        self, filled_adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Further events of the table come before the read, and others of it behind."""
        db, cls = filled_adapter, load_source(filled_adapter.kind)
        aside = {"event_processing_failure_handling_mode": "warn", "batch_max_rows": 1}
        start_connector(db, tmp_path / "before", **aside).store.close()
        with db.transaction() as t:
            t.insert("a", {"id": 60, "n": 1})
            t.insert("b", {"id": 60, "n": 1})
        with db.transaction() as t:
            t.insert("b", {"id": 61, "n": 1})
            t.insert("a", {"id": BAD, "n": 1})
        with db.transaction() as t:
            t.update("a", {"id": 60}, {"n": 2})
            t.delete("a", {"id": 1})
            t.delete("b", {"id": 1})
        name = f"{db.namespace}.a"
        for n in range(1, 99):
            shutil.copytree(tmp_path / "before", folder := tmp_path / str(n))
            connector, died = db.connector(folder, **aside), False
            with monkeypatch.context() as patch:
                refuse_row(patch, cls, name)
                with monkeypatch.context() as death:
                    die_after(death, cls, n)
                    try:
                        connector.capture()
                    except RunKilled:
                        died = True
                connector.capture()
            equal(connector, db)
            offset = connector.store.load_offset(connector.name).offset
            assert offset is not None
            assert ([*offset.set_aside], offset.stopped, offset.snapshot.pending) == ([name], {}, {})
            assert len(offset.set_aside[name]) == 1
            if not died:
                break
            connector.store.close()
        assert n > 1
        with db.transaction() as t:
            t.update("a", {"id": BAD}, {"n": 3})
            t.insert("b", {"id": 62, "n": 1})
        connector.capture()
        equal(connector, db)
