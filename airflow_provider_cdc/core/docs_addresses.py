"""Addresses of pages of the documentation, for errors and alerts.

The option ``docs_url`` of ``[cdc]`` in Airflow's configuration has the base. Airflow's processes read it with :func:`set_docs_base`; others, such as
Spark's driver, have only its environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["DOCS_VARIABLE", "build_docs_address", "set_docs_base"]

DOCS_VARIABLE = "AIRFLOW__CDC__DOCS_URL"


def _read_variable() -> str:
    return os.environ.get(DOCS_VARIABLE, "")


_find_base: list[Callable[[], str]] = [_read_variable]


def set_docs_base(find_base: Callable[[], str]) -> None:
    """Set the function that finds the base of the addresses in this process.

    :param find_base: returns the value of the option ``docs_url``, or nothing
    """
    _find_base[:] = [find_base]


def build_docs_address(page: str) -> str:
    """Build the address of a page.

    >>> build_docs_address("errors/PositionLost")
    'docs/errors/PositionLost.md'

    :param page: its path below ``docs/``, without a suffix
    """
    base = _find_base[0]().strip()
    if not base:
        return f"docs/{page}.md"
    return base.replace("{page}", page) if "{page}" in base else f"{base.rstrip('/')}/{page}.html"
