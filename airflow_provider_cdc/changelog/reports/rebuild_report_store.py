"""Reports of the last rebuild of a connector's tables: one document for each target, beside the reports of applies."""

from __future__ import annotations

from airflow_provider_cdc.changelog.reports.report_store import TargetReports
from airflow_provider_cdc.changelog.reports.table_job_reports import RebuildReport


class RebuildReports(TargetReports[RebuildReport]):
    """The reports about one connector.

        >>> RebuildReports(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["tables"][0]["batch"]
        1203

    :class:`~airflow_provider_cdc.changelog.reports.table_job_reports.RebuildReport` describes the fields of a report.
    """

    FOLDER = "rebuilt"
