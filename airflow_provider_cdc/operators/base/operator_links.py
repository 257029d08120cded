"""Links from task instances to pages about their work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

from airflow_provider_cdc.hooks.page_links import build_page_url

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class BatchLink(BaseOperatorLink):
    """The last batch that the task instance wrote or applied; the connector's page, if there was none."""

    name = "CDC batch"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        connector, batch = getattr(operator, "connector", ""), getattr(operator, "batch", None)
        return (
            build_page_url("connectors", connector, "batches", batch)
            if batch
            else build_page_url("connectors", connector)
        )


class ConnectorsLink(BaseOperatorLink):
    """The list of all connectors, for a task that is about several."""

    name = "CDC connectors"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return build_page_url("")
