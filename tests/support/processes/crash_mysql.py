"""Capture runs of MySQL and MariaDB that kill themselves; see ``crash``."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from tests.support.processes import crash


def capture(folder: str, **options: Any) -> dict[str, Any]:
    """Capture as :func:`crash.capture` does, with small blocks and a step for each block with an open transaction."""
    binlog_connection.BUFFER = 1 << 14
    encode = Envelope.encode_block

    def step_and_encode(self: Envelope, block: LogBlock, *args: Any, **more: Any) -> Any:
        if block.open:
            crash.current.step("open block")
        return encode(self, block, *args, **more)

    Envelope.encode_block = step_and_encode  # type: ignore[method-assign]
    return crash.capture(folder, **options)
