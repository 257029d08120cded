"""Table formats that changes are applied to; one module each, one line each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from spark_jobs.targets.base import Target

TARGETS = {"delta": "spark_jobs.targets.delta:DeltaTarget", "memory": "spark_jobs.targets.memory:MemoryTarget"}
"""Kind, as in the jobs' arguments → class."""


STAMPS = {"delta": "spark_jobs.targets.delta_log:stamp"}
"""Kind → a function that tells without Spark whether a table has changed; see :func:`load_stamp`."""


def load_stamp(kind: str) -> Callable[[Any, str], str] | None:
    """A function of a filesystem (fsspec) and a folder that returns a text. The text changes whenever the table there changes, and
    is empty if there is none. Kinds of targets need not have such a function."""
    if kind not in STAMPS:
        return None
    module, _, name = STAMPS[kind].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def load_target(kind: str) -> type[Target]:
    """:raises ConfigError: there is no such kind"""
    if kind not in TARGETS:
        raise ConfigError(f"{kind!r} is not a kind of target. Valid values are: {', '.join(sorted(TARGETS))}.")
    module, _, name = TARGETS[kind].partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
