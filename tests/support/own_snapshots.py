"""A package of a user's, with a policy, a query and a lock, which tests tell what to answer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.entry_points import SNAPSHOT_LOCKS, SNAPSHOT_POLICIES, SNAPSHOT_QUERIES
from tests.support.packages import install_package

_CODE = """
from airflow_provider_cdc.core.snapshot.snapshot_policy import SnapshotPolicy

CALLS, SELECTS, LOCKS = [], {}, {}


class OncePerMonth(SnapshotPolicy):
    due = True

    def __init__(self, properties): ...
    def should_snapshot_data(self, offset_exists, in_progress): return type(self).due
    def should_snapshot_schema(self, offset_exists, in_progress): return True
    def should_stream(self): return True
    def should_snapshot_on_schema_error(self): return False
    def should_snapshot_on_data_error(self): return True
    def snapshot_completed(self): type(self).due = False


def query(table, columns):
    CALLS.append((str(table), list(columns)))
    return SELECTS[table.name]


def lock(timeout, table):
    CALLS.append((timeout, str(table)))
    return LOCKS.get(table.name)
"""


def own_snapshots(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module, for one test: policy ``monthly``, query ``some`` and lock ``mild``."""
    (place := folder / "own").mkdir()
    points = {
        SNAPSHOT_POLICIES: {"monthly": "{module}:OncePerMonth"}, SNAPSHOT_QUERIES: {"some": "{module}:query"},
        SNAPSHOT_LOCKS: {"mild": "{module}:lock"},
    }  # fmt: skip
    install_package(place, monkeypatch, points, _CODE)
    return importlib.import_module("added_own")
