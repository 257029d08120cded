"""Delta's log as plain files, for a look that needs no Spark."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_cdc.targets.lake.formats.version_stamp import read_version_stamp

_COMMIT = re.compile(r"(\d{20})\.json")


def stamp(files: Any, folder: str, known: str = "") -> str:
    """Return the newest version of a table, as :func:`~airflow_provider_cdc.targets.lake.formats.version_stamp.read_version_stamp`.

    :param files: fsspec filesystem
    :param known: an earlier stamp
    :return: empty if there is no table
    """
    return read_version_stamp(
        files, f"{folder}/_delta_log", _find_version, lambda number: (f"{number:020}.json",), known
    )


def _find_version(name: str) -> int | None:
    match = _COMMIT.fullmatch(name)
    return int(match[1]) if match else None
