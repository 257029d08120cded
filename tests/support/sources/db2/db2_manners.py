"""Manners in which Db2 servers differ; random work draws from them."""

from __future__ import annotations

from random import Random
from typing import Any


def draw_server_options(r: Random) -> dict[str, Any]:
    """Draw options of a test server (:class:`dev.servers.db2.settings.Settings`)."""
    return {
        "synchpoints": r.choice(("none", "none", "new", "both")),
        "lob_columns": r.choice(("lob", "lob", "letter")),
        "lob_writes": r.choice(("indicator", "nothing", "values")),
        "insert_uow": r.random() < 0.7,
        "lsn_bytes": r.choice((10, 16)),
        "log_seconds": r.random() < 0.5,
    }
