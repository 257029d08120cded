"""The databases that changes can be captured from: one folder each, one line each.

A folder has the same files everywhere: ``config.py`` ``connect.py`` ``position.py`` ``schema.py`` ``types.py`` ``snapshot.py``
``stream.py`` ``checks.py``, and ``source.py`` with the class that is named here. Folders do not import each other.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_cdc.core.source import Source

SOURCES = {
    "memory": "airflow_provider_cdc.sources.memory.source:MemorySource",
    "mysql": "airflow_provider_cdc.sources.mysql.source:MySqlSource",
    "mariadb": "airflow_provider_cdc.sources.mysql.source:MariaDbSource",
    "oracle": "airflow_provider_cdc.sources.oracle.source:OracleSource",
}
"""Kind, as connector definitions spell it → class."""


def load_source(kind: str) -> type[Source]:
    """The class of a kind of source.

    :raises ConfigError: there is no such kind, or its driver is not installed
    """
    if kind not in SOURCES:
        raise ConfigError(f"{kind!r} is not a kind of source. Valid values are: {', '.join(sorted(SOURCES))}.")
    module, _, name = SOURCES[kind].partition(":")
    try:
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    except ImportError as e:
        folder = module.split(".")[2]
        raise ConfigError(
            f"The driver of source {kind!r} is not installed: {e}",
            remedy=f"pip install 'airflow-provider-cdc[{folder}]'",
        ) from e
