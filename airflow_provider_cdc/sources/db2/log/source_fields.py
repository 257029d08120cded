"""The source's own fields of events. Runs without changes load this module: it must stay light."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from airflow_provider_cdc.core.spi.source import VARIED

SOURCE_FIELDS: Final = (
    pa.field("change_lsn", pa.string(), metadata=VARIED),
    pa.field("commit_lsn", pa.string()),
)
"""The source's own fields of the ``source`` block (spec DB2-157, DB2-158). Rows of snapshots have no ``change_lsn``."""
