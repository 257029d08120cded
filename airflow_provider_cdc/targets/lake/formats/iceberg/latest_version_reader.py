"""Iceberg's metadata as plain files, for a look that needs no Spark."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_cdc.targets.lake.formats.version_stamp import read_version_stamp

_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")


def stamp(files: Any, folder: str, known: str = "") -> str:
    """Return the newest version of a table by path, as :func:`~airflow_provider_cdc.targets.lake.formats.version_stamp.read_version_stamp`.

    :param files: fsspec filesystem
    :param known: an earlier stamp
    :return: empty if there is no table
    """
    return read_version_stamp(files, f"{folder}/metadata", _find_version, _list_names, known)


def _find_version(name: str) -> int | None:
    match = _METADATA.fullmatch(name)
    return int(match[1]) if match else None


def _list_names(number: int) -> tuple[str, ...]:
    """Names of a version's file by its compression, as Iceberg's tables by path look for them."""
    return f"v{number}.metadata.json", f"v{number}.gz.metadata.json", f"v{number}.metadata.json.gz"
