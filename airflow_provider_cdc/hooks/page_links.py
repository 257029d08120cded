"""Links from task instances to the plugin's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

from airflow.sdk import BaseOperatorLink

from airflow_provider_cdc.hooks.airflow_compat import conf, find_bundle_url

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

ROUTE = "cdc"
"""Of the plugin's pages within Airflow's UI."""


def build_page_url(*parts: str | int) -> str:
    """Address of a page of the plugin; empty where Airflow cannot show the pages.

    >>> build_page_url("connectors", "shop", "batches", 7)
    '/plugin/cdc/connectors/shop/batches/7'
    """
    if find_bundle_url("") is None:
        return ""
    base = conf.get("api", "base_url", fallback="/") or "/"
    path = "/".join(["plugin", ROUTE, *(quote(str(part), safe="") for part in parts)])
    return urljoin(base if base.endswith("/") else f"{base}/", path)


class ConnectorLink(BaseOperatorLink):
    """The page of the connector that the task instance is about."""

    name = "CDC connector"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return build_page_url("connectors", getattr(operator, "connector", ""))
