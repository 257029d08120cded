"""Does something when a chunk has been read, and before it is handed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cdc.core.incremental.chunk_reader_thread import ChunkReaderThread

AtRead = Callable[[int, Callable[[], object]], None]


def chunk_hook(monkeypatch: pytest.MonkeyPatch) -> AtRead:
    """Makes ``at_read(n, act)``: calls ``act`` in the thread that reads, when the n-th chunk has been read and is not handed over yet."""
    acts: dict[int, Callable[[], object]] = {}
    settle, count = ChunkReaderThread._settle, [0]

    def count_and_act(thread: ChunkReaderThread, *where: Any, **how: Any) -> None:
        if how.get("chunk"):
            count[0] += 1
            if (act := acts.get(count[0])) is not None:
                act()
        settle(thread, *where, **how)

    monkeypatch.setattr(ChunkReaderThread, "_settle", count_and_act)
    return lambda n, act: acts.update({n: act})
