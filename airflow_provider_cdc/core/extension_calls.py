"""Loads and calls the extensions of users, with one error for whatever goes wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_provider_cdc.core.entry_points import list_extensions
from airflow_provider_cdc.core.errors import CdcError, ConfigError

_T = TypeVar("_T")


def load_extension(group: str, name: str, setting: str) -> Callable[..., Any]:
    """Load an entry point of a user's package.

    :param name: of the entry point
    :param setting: the property that names it, for errors
    :raises ConfigError: it is not installed, cannot be loaded, or is not callable
    """
    point = list_extensions(group).get(name)
    if point is None:
        raise build_unusable_error(setting, f"no installed package has this entry point in the group {group}")
    loaded = call_extension(setting, point.load)
    if not callable(loaded):
        raise build_unusable_error(setting, f"{point.value} is not callable")
    extension: Callable[..., Any] = loaded
    return extension


def call_extension(setting: str, function: Callable[..., _T], *args: Any) -> _T:
    """Call a function of a user's package.

    :raises ConfigError: it raises an error, unless that is one of this project
    """
    try:
        return function(*args)
    except CdcError:
        raise
    except Exception as e:
        raise build_unusable_error(setting, f"it raises {type(e).__name__}: {e}") from e


def build_unusable_error(setting: str, why: str) -> ConfigError:
    """Build the error for an extension that cannot be used."""
    return ConfigError(
        f"{setting} cannot be used: {why}.",
        safe="Committed batches are safe, and the next run resumes after them.",
        remedy="correct the package with this entry point on the workers that run captures",
    )
