"""Reports of the last maintenance of a connector's tables: one document for each target, beside the reports of applies."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.changelog.reports.report_store import TargetReports


class MaintenanceReports(TargetReports[dict[str, Any]]):
    """The reports about one connector.

        >>> MaintenanceReports(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["tables"][0]["steps"]
        {'compact': {'changed': True, 'said': '34 files became 1'}}

    A report has ``connector``, ``target``, ``location``, ``run`` (the id that the run was given), ``tables`` (``topic``, ``location``, ``steps`` and
    ``problem`` of each) and ``seconds``.
    """

    FOLDER = "maintained"
