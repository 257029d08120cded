"""The source's own fields of the ``source`` block of events (Debezium PostgreSQL connector, "Change event values")."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from airflow_provider_cdc.core.spi.source import VARIED

SOURCE_FIELDS: Final = [
    pa.field("sequence", pa.string(), metadata=VARIED),
    pa.field("txId", pa.int64()),
    pa.field("lsn", pa.int64()),
    pa.field("xmin", pa.int64()),
]
"""``sequence`` has the end of the transaction before, and the LSN of the change; ``xmin`` is always null."""


def build_source(before: int, transaction: int | None, lsn: int) -> dict[str, object]:
    """Return the fields of an event that is not about a row.

    >>> build_source(16, 740, 32)
    {'sequence': '["16","32"]', 'txId': 740, 'lsn': 32, 'xmin': None}
    """
    return {"sequence": f'["{before}","{lsn}"]', "txId": transaction, "lsn": lsn, "xmin": None}
