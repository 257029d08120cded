"""Capture runs of Db2, and procedures of its administration, that kill themselves; see ``crash``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from airflow_provider_cdc.connector import ConnectorDefinition, open_lifecycle
from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources.db2.log import change_table_reader, commit_windows, cursor_pool, lob_reader, stream
from airflow_provider_cdc.sources.db2.log.change_merger import ChangeMerger
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.processes import crash

SMALL = {
    "batch.max.rows": 40, "snapshot.fetch.size": 7, "snapshot.max.threads": 2, "provide.transaction.metadata": True,
    "snapshot.lock.timeout.ms": 5000,
}  # fmt: skip
"""A few rows show every seam."""


@contextmanager
def shrink_limits(r: Random) -> Iterator[None]:
    """Small blocks, fetches and windows, and few results at once, by chance."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(ChangeMerger.__init__, "__defaults__", (r.choice((1, 3, 24, 100)),)))
        stack.enter_context(patch.object(cursor_pool.CursorPool.__init__, "__defaults__", (r.choice((1, 2, 64)),)))
        rows = r.choice((1, 2, 5, 30))
        for module, name, value in (
            (stream, "FETCH_ROWS", rows), (stream, "FEWEST_ROWS", 1), (change_table_reader, "FIRST_ROWS", rows),
            (change_table_reader, "LEAST_ROWS", 1), (lob_reader, "KEYS_AT_ONCE", r.choice((1, 3, 50))),
            (commit_windows, "FIRST", r.choice((1, 4, 50))), (commit_windows, "LEAST", 1), (commit_windows, "MOST", r.choice((1, 6, 1000))),
        ):  # fmt: skip
            stack.enter_context(patch.object(module, name, value))
        yield


def capture(folder: str, *, seed: int, **options: Any) -> dict[str, Any]:
    """Capture as :func:`crash.capture` does, with small blocks and a step for each block with an open transaction."""
    encode = Envelope.encode_block

    def step_and_encode(self: Envelope, block: LogBlock, *args: Any, **more: Any) -> Any:
        if block.open:
            crash.current.step("open block")
        return encode(self, block, *args, **more)

    Envelope.encode_block = step_and_encode  # type: ignore[method-assign]
    with shrink_limits(Random(seed)):
        return crash.capture(folder, **options)


def procedure(
    folder: str,
    name: str,
    table: str,
    flags: list[str],
    *,
    at: int,
    options: Mapping[str, Any],
    secrets: Mapping[str, Any],
) -> None:
    """Carry out a procedure, and die before its n-th step."""
    assert StateStore.__init__.__kwdefaults__ is not None
    StateStore.__init__.__kwdefaults__["lease_ttl_s"] = crash.LEASE_S
    definition = ConnectorDefinition("test", "db2", f"{folder}/changelog", options)
    opened = open_lifecycle(definition, f"sqlite:///{folder}/state.db", secrets=secrets)
    steps: list[str] = []

    def count_line(line: str) -> None:
        steps.append(line)
        if len(steps) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with opened as lifecycle:
        lifecycle.carry_out(lifecycle.plan_procedure(name, table, flags), "test", "tests", count_line)
