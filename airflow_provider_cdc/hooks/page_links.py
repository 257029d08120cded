"""Links from task instances to the plugin's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

from airflow.sdk import BaseOperatorLink

from airflow_provider_cdc.hooks.airflow_compat import conf, find_bundle_url

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from airflow_provider_cdc.core.spi.state_records import TaskRun

ROUTE = "cdc"
"""Of the plugin's pages within Airflow's UI."""


def build_page_url(*parts: str | int) -> str:
    """Address of a page of the plugin; empty where Airflow cannot show the pages.

    >>> build_page_url("connectors", "shop", "batches", 7)
    '/plugin/cdc/connectors/shop/batches/7'
    """
    if find_bundle_url("") is None:
        return ""
    return urljoin(_base_url(), "/".join(["plugin", ROUTE, *(quote(str(part), safe="") for part in parts)]))


def format_log_path(run: TaskRun) -> str:
    """Path of the log of a task's try within Airflow's UI.

    >>> format_log_path(TaskRun("cdc_shop", "manual__2025-01-02T03:04+00:00", "capture"))
    'dags/cdc_shop/runs/manual__2025-01-02T03%3A04%2B00%3A00/tasks/capture?try_number=1'
    """
    parts = ["dags", run.dag_id, "runs", run.run_id, "tasks", run.task_id]
    parts += ["mapped", str(run.map_index)] if run.map_index >= 0 else []
    return f"{'/'.join(quote(part, safe='') for part in parts)}?try_number={run.try_number}"


def build_log_url(path: str) -> str:
    """Address of the log of a task's try in Airflow's UI.

    :param path: as :func:`format_log_path` returns it
    """
    return urljoin(_base_url(), path)


def _base_url() -> str:
    base = conf.get("api", "base_url", fallback="/") or "/"
    return str(base) if base.endswith("/") else f"{base}/"


class ConnectorLink(BaseOperatorLink):
    """The page of the connector that the task instance is about."""

    name = "CDC connector"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return build_page_url("connectors", getattr(operator, "connector", ""))
