"""Statements that set up the account of a capture: a file in the folder of each source, in sections."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources import SOURCES

_NAMES = ("grants.sql", "grants.js")
_HEADING = re.compile(r"^(?:--|//) === (.+) ===\n", re.M)


def list_grant_files() -> dict[str, Path]:
    """Return the files by the kinds of source that have one."""
    folders = {kind: Path(__file__).parent / paths.config.split(".")[2] for kind, paths in SOURCES.items()}
    found = {kind: [folder / name for name in _NAMES if (folder / name).exists()] for kind, folder in folders.items()}
    return {kind: files[0] for kind, files in sorted(found.items()) if files}


def read_grants(kind: str, section: str | None = None) -> str:
    """Return the statements for a kind of source, or those of one section.

        >>> read_grants("mysql", "remove")
        "DROP USER 'cdc'@'%';"

    :raises ConfigError: the kind has no such file, or the file no such section
    """
    files = list_grant_files()
    if kind not in files:
        raise ConfigError(f"There are no grants for {kind!r}.", remedy=f"choose one of {', '.join(files)}")
    text = files[kind].read_text(encoding="utf-8")
    if section is None:
        return text
    _, *parts = _HEADING.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if section not in sections:
        raise ConfigError(
            f"The grants for {kind} have no section {section!r}.", remedy=f"choose one of {', '.join(sections)}"
        )
    return sections[section].strip()
