"""The task of a connector whose definition cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class BrokenDefinitionOperator(BaseOperator):
    """Fails with the error of a definition, so that alerts, the list of DAGs and the log of the task show it.

    :param error: the message
    """

    ui_color = "#f4d6d6"

    def __init__(self, *, error: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    def execute(self, context: Context) -> None:
        from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException

        raise AirflowFailException(self.error)
