"""Tables that are never captured, whatever the lists say: Db2's own, and those of the capture agent."""

from __future__ import annotations

import re

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.config import Db2Config

_SYSTEM = re.compile(r"SYS.*|NULLID|SQLJ|ASN")


def is_system(table: TableId, config: Db2Config) -> bool:
    """Check whether a table is Db2's own, or one of the agent's."""
    return table.namespace == config.asn_capture_schema or _SYSTEM.fullmatch(table.namespace) is not None
