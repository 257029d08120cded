"""Reports of the last rebuild of a connector's tables: one document for each target, beside the reports of applies."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.changelog.reports.report_store import TargetReports


class RebuildReports(TargetReports[dict[str, Any]]):
    """The reports about one connector.

        >>> RebuildReports(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["tables"][0]["batch"]
        1203

    A report has ``connector``, ``target``, ``location``, ``run`` (the id that the run was given), ``tables`` (``topic``, ``location``, ``batch``,
    ``seconds`` and, if a route makes several of its topic, ``name`` of each that was built), ``problem`` (why the others were not; empty if all were) and ``seconds``.
    """

    FOLDER = "rebuilt"
