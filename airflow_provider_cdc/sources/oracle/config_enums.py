"""Types of the values of the Oracle source's properties: choices, lists of names."""

from __future__ import annotations

import enum
import logging
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

log = logging.getLogger(__name__)

LOBS: Final = frozenset({"CLOB", "NCLOB", "BLOB", "XMLTYPE"})
"""Column types that are captured with ``lob.enabled`` only: LogMiner shows their values in rows of their own, and not in ``where``."""


class ConnectionAdapter(enum.StrEnum):
    LOGMINER = "logminer"


class IntervalHandling(enum.StrEnum):
    NUMERIC = "numeric"
    STRING = "string"


class NetworkProtocol(enum.StrEnum):
    TCP = "tcp"
    TCPS = "tcps"


class LockingMode(enum.StrEnum):
    SHARED = "shared"
    NONE = "none"
    CUSTOM = "custom"


class MiningStrategy(enum.StrEnum):
    REDO_LOG_CATALOG = "redo_log_catalog"
    ONLINE_CATALOG = "online_catalog"
    HYBRID = "hybrid"


class QueryFilterMode(enum.StrEnum):
    NONE = "none"
    IN = "in"
    REGEX = "regex"


class BufferType(enum.StrEnum):
    MEMORY = "memory"


def _known_strategy(value: Any) -> Any:
    if value == "redo_in_catalog":
        log.warning("log.mining.strategy=redo_in_catalog is treated as redo_log_catalog, the correct spelling.")
        return MiningStrategy.REDO_LOG_CATALOG
    return value


def _names(value: Any) -> Any:
    """``"a,b"`` → ``("a", "b")``."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, str) for p in parts):
        raise ValueError(f"{value!r} is neither a list of texts nor one text with commas")
    return tuple(p.strip() for p in parts if p.strip())


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Strategy = Annotated[MiningStrategy, BeforeValidator(_known_strategy)]
