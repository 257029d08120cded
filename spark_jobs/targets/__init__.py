"""Table formats that changes are applied to; one module each, one line each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from spark_jobs.targets.base import Target

TARGETS = {"delta": "spark_jobs.targets.delta:DeltaTarget"}
"""Kind, as jobs spell it → class."""


def load_target(kind: str) -> type[Target]:
    """:raises ConfigError: there is no such kind"""
    if kind not in TARGETS:
        raise ConfigError(f"{kind!r} is not a kind of target. Valid values are: {', '.join(sorted(TARGETS))}.")
    module, _, name = TARGETS[kind].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
