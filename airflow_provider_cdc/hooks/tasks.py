"""What operators and sensors that work for a connector have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_provider_cdc.core.errors import CdcError, TerminalError
from airflow_provider_cdc.hooks.connector import ConnectorAccess
from airflow_provider_cdc.runtime import ConnectorDefinition, refuse_secrets


class ConnectorFields:
    """The fields of a connector, taken from its definition so that Airflow can render them."""

    CONNECTOR_FIELDS: ClassVar[tuple[str, ...]] = (
        "changelog",
        "properties",
        "changelog_options",
        "conn_id",
        "state_conn_id",
        "storage_conn_id",
    )
    """Template fields. The name and the kind of source are fixed: they are part of assets, links and the DAG's form."""

    def _take(
        self, definition: ConnectorDefinition, conn_id: str, state_conn_id: str, storage_conn_id: str | None
    ) -> None:
        refuse_secrets(definition)
        self.connector, self.source = definition.name, definition.source
        self.changelog = definition.changelog
        self.properties: dict[str, Any] = dict(definition.properties)
        self.changelog_options: dict[str, Any] = dict(definition.changelog_options)
        self.conn_id, self.state_conn_id, self.storage_conn_id = conn_id, state_conn_id, storage_conn_id

    @property
    def access(self) -> ConnectorAccess:
        """The connector with rendered fields."""
        definition = ConnectorDefinition(
            self.connector, self.source, self.changelog, self.properties, self.changelog_options
        )
        return ConnectorAccess(definition, self.conn_id, self.state_conn_id, self.storage_conn_id or None)


def failure(error: CdcError) -> Exception:
    """What a task raises for an error of ours: Airflow retries what may pass, and does not retry what a person must mend."""
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    return (AirflowFailException if isinstance(error, TerminalError) else AirflowException)(str(error))
