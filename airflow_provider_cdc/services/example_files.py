"""Example DAGs, and the dashboard and rules for monitoring: files that the wheel ships for people to copy."""

from __future__ import annotations

from pathlib import Path

import airflow_provider_cdc

_FOLDERS = {"dags": "dags", "grafana": "docs/grafana"}
"""Folder of the examples → its path in a working copy; the wheel has all of them in one folder of the package."""


def find_examples() -> dict[str, Path]:
    """Return the example files: name → path.

    >>> sorted(find_examples())[:2]
    ['dags/cdc_ad_hoc_snapshot.py', 'dags/cdc_lifecycle.py']
    """
    package = Path(airflow_provider_cdc.__file__).parent
    installed = package / "examples"
    examples: dict[str, Path] = {}
    for folder, in_working_copy in _FOLDERS.items():
        root = installed / folder if installed.is_dir() else package.parent / in_working_copy
        files = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
        examples |= {f"{folder}/{path.relative_to(root).as_posix()}": path for path in files}
    return examples
