"""What the last maintenance of a connector's tables did: one document for each target, beside the reports of applies."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from airflow_provider_cdc.changelog.storage import Storage

_FOLDER = "maintained"


class MaintenanceReports:
    """The reports about one connector.

        >>> MaintenanceReports(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["tables"][0]["steps"]
        {'compact': {'changed': True, 'said': '34 files became 1'}}

    A report has ``connector``, ``target``, ``location``, ``run`` (the id that the run was given), ``tables`` (``topic``, ``location``, ``steps`` and
    ``problem`` of each) and ``seconds``.
    """

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._connector = storage, connector

    def path(self, target: str, location: str) -> str:
        digest = hashlib.sha256(location.encode()).hexdigest()[:12]
        return self._storage.path(self._connector, _FOLDER, f"{target}-{digest}.json")

    def read(self, target: str, location: str) -> dict[str, Any] | None:
        """``None`` if there is none."""
        data = self._storage.read(self.path(target, location))
        return None if data is None else dict(orjson.loads(data))

    def write(self, report: dict[str, Any]) -> None:
        """Replace the report of a target atomically."""
        path = self.path(report["target"], report["location"])
        self._storage.replace(path, orjson.dumps(report, option=orjson.OPT_INDENT_2))
