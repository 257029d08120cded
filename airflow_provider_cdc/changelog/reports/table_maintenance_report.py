"""Reports of the last maintenance of a connector's tables: one document for each target, beside the reports of applies."""

from __future__ import annotations

from airflow_provider_cdc.changelog.reports.report_store import TargetReports
from airflow_provider_cdc.changelog.reports.table_job_reports import MaintenanceReport


class MaintenanceReports(TargetReports[MaintenanceReport]):
    """The reports about one connector.

        >>> MaintenanceReports(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["tables"][0]["steps"]
        {'compact': {'changed': True, 'said': '34 files became 1'}}

    :class:`~airflow_provider_cdc.changelog.reports.table_job_reports.MaintenanceReport` describes the fields of a report.
    """

    FOLDER = "maintained"
