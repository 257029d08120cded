"""Texts of errors with their names, as they are stored and shown: the name leads to the page in ``docs/errors``."""

from __future__ import annotations

from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.docs_addresses import build_docs_address
from airflow_provider_cdc.core.errors import CdcError

__all__ = ["build_page_address", "describe_error", "split_error_name"]

_PAGES = {name: getattr(errors, name).page_name for name in errors.__all__}


def describe_error(error: BaseException) -> str:
    """Return the text of an error behind its name.

    >>> describe_error(errors.StorageFull("No space is left.")).splitlines()
    ['StorageFull: No space is left.', '  Page:   docs/errors/StorageFull.md']
    >>> describe_error(KeyError("pos"))
    "KeyError: 'pos'"
    """
    name = (error.page_name if isinstance(error, CdcError) else "") or type(error).__name__
    return f"{name}: {text}" if (text := str(error)) else name


def split_error_name(text: str) -> tuple[str, str]:
    """Split the text of :func:`describe_error` into the name of the error and the rest; the name is empty if it has no page.

    >>> split_error_name("StorageFull: No space is left.")
    ('StorageFull', 'No space is left.')
    >>> split_error_name("Note: all is well.")
    ('', 'Note: all is well.')
    """
    name, separator, rest = text.partition(": ")
    return (name, rest) if separator and _PAGES.get(name) else ("", text)


def build_page_address(name: str) -> str:
    """Build the address of the page of an error; empty if it has none.

    >>> build_page_address("StorageFull"), build_page_address("CdcError")
    ('docs/errors/StorageFull.md', '')
    """
    page = _PAGES.get(name)
    return build_docs_address(f"errors/{page}") if page else ""
