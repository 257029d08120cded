"""The source's own fields and pseudocolumn. A run that finds nothing loads this, so it must stay light."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from airflow_provider_cdc.core.spi.source import VARIED

ROWID: Final = "ROWID"
"""The pseudocolumn by which tables without a key are read in order."""

SOURCE_FIELDS = [
    pa.field("txId", pa.string()),
    pa.field("scn", pa.string(), metadata=VARIED),
    pa.field("commit_scn", pa.string()),
    pa.field("lcr_position", pa.string()),
    pa.field("rs_id", pa.string(), metadata=VARIED),
    pa.field("ssn", pa.int64()),
    pa.field("redo_thread", pa.int32()),
    pa.field("user_name", pa.string()),
    pa.field("row_id", pa.string(), metadata=VARIED),
    pa.field("redo_sql", pa.string(), metadata=VARIED),
]
"""Fields of the ``source`` block that only this source has (Debezium Oracle connector, "Change event values")."""
