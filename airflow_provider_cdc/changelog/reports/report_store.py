"""Stores the last result of a job on the tables of a target.

There is one document for each kind of table and location, in a folder of the connector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

import orjson

from airflow_provider_cdc.changelog.files.storage import Storage

Report = TypeVar("Report", bound=Mapping[str, Any])
"""The type of the reports of one job."""


class TargetReports(Generic[Report]):
    """The reports of one job about one connector.

    :cvar FOLDER: in the connector's folder
    """

    FOLDER: ClassVar[str]

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._connector = storage, connector

    def report_path(self, target: str, location: str) -> str:
        """Return the path of the report of a target."""
        digest = hashlib.sha256(location.encode()).hexdigest()[:12]
        return self._storage.join_path(self._connector, self.FOLDER, f"{target}-{digest}.json")

    def read(self, target: str, location: str) -> Report | None:
        """Read the last run's report; ``None`` if there is none."""
        data = self._storage.read(self.report_path(target, location))
        return None if data is None else cast("Report", dict(orjson.loads(data)))

    def write(self, report: Report) -> None:
        """Replace the report of a target atomically."""
        path = self.report_path(report["target"], report["location"])
        self._storage.replace(path, orjson.dumps(report, option=orjson.OPT_INDENT_2))
