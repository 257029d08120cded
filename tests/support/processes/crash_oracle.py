"""Capture runs of Oracle that kill themselves; see ``crash``."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources.oracle.mining import logminer_stream
from airflow_provider_cdc.sources.oracle.transactions.buffer import transaction_buffer
from tests.support.processes import crash

SMALL = {
    "batch.max.rows": 40, "query.fetch.size": 50, "log.mining.batch.size.min": 20, "log.mining.batch.size.default": 60,
    "log.mining.batch.size.max": 200, "log.mining.buffer.memory.max.bytes": 30_000, "snapshot.max.threads": 2,
    "provide.transaction.metadata": True,
}  # fmt: skip
"""A few rows show every seam."""


def capture(folder: str, **options: Any) -> dict[str, Any]:
    """Capture as :func:`crash.capture` does, with small blocks and a step for each block with an open transaction."""
    transaction_buffer.BLOCK_ROWS, logminer_stream.PIECE_ROWS = 24, 50
    encode = Envelope.encode_block

    def step_and_encode(self: Envelope, block: LogBlock, *args: Any, **more: Any) -> Any:
        if block.open:
            crash.current.step("open block")
        return encode(self, block, *args, **more)

    Envelope.encode_block = step_and_encode  # type: ignore[method-assign]
    return crash.capture(folder, **options)
