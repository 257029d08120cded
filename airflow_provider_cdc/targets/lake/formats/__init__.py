"""Table formats that changes are applied to; one module or folder each, one line each."""

from __future__ import annotations

import importlib
from typing import Any

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.format_descriptor import PROFILES, WRITES, TableFormat

TARGETS = {
    "delta": "airflow_provider_cdc.targets.lake.formats.delta",
    "iceberg": "airflow_provider_cdc.targets.lake.formats.iceberg",
    "memory": "airflow_provider_cdc.targets.lake.formats.memory_table",
}
"""Kind, as in the jobs' arguments → module whose ``FORMAT`` is its :class:`airflow_provider_cdc.targets.lake.formats.format_descriptor.TableFormat`."""


def load_format(kind: Any) -> TableFormat:
    """Load a format by its name.

    :raises ConfigError: there is no such kind
    """
    if not isinstance(kind, str) or kind not in TARGETS:
        raise ConfigError(f"{kind!r} is not a kind of target. Valid values are: {', '.join(sorted(TARGETS))}.")
    table_format: TableFormat = importlib.import_module(TARGETS[kind]).FORMAT
    return table_format


def known_profile(profile: str | None) -> str:
    """Check a profile and return it.

    :raises ConfigError: there is no such profile
    """
    if profile not in PROFILES:
        raise ConfigError(f"{profile!r} is not a table profile. Valid values are: {', '.join(PROFILES)}.")
    return profile


def known_writes(writes: str | None) -> str:
    """Check a value of ``writes`` and return it.

    :raises ConfigError: there is no such one
    """
    if writes not in WRITES:
        raise ConfigError(f"{writes!r} is not a write strategy. Valid values are: {', '.join(WRITES)}.")
    return writes
