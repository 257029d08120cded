"""A connector as tasks, triggers and commands know it: its definition, and the ids of its Airflow connections.

Nothing here holds a secret, so that it may be serialized. Secrets are looked up when something is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from airflow_provider_cdc.connector import (
    Changes,
    ChangesProbe,
    ConnectorDefinition,
    open_capture,
    open_lifecycle,
    open_source,
    refuse_secrets,
    source_key,
)
from airflow_provider_cdc.core.config.secrets import secret_values
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.airflow_stats import to_airflow
from airflow_provider_cdc.hooks.connection_extra import extra_of
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.core.capture.capture import Capture
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import Lifecycle
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.store import StateStore
    from airflow_provider_cdc.verify.reference import Verification


@dataclass(frozen=True, slots=True)
class ConnectorAccess:
    """A connector as Airflow sees it.

    :param conn_id: connection to the source
    :param state_conn_id: connection to the state tables
    :param storage_conn_id: connection whose extra holds secret fsspec options of the change log, if it needs any
    """

    definition: ConnectorDefinition
    conn_id: str
    state_conn_id: str = DEFAULT_CONN_ID
    storage_conn_id: str | None = None

    def document(self) -> dict[str, Any]:
        """As JSON; :meth:`of` is the way back."""
        return {"definition": self.definition.document(), "conn_id": self.conn_id} | {
            "state_conn_id": self.state_conn_id,
            "storage_conn_id": self.storage_conn_id,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> ConnectorAccess:
        return cls(**{**document, "definition": ConnectorDefinition(**document["definition"])})

    @contextlib.contextmanager
    def capture(
        self, *, owner: str, lease_ttl_s: float, lease_wait_s: float, dag: str | None = None
    ) -> Iterator[Capture]:
        """A capture that is ready to run.

        :param dag: id of the DAG that captures: users who may see it may see the connector
        """
        state = CdcStateHook(self.state_conn_id).address()
        connections = {"source": self.conn_id, "state": self.state_conn_id}
        if self.storage_conn_id:
            connections["storage"] = self.storage_conn_id
        if dag is not None:
            connections["dag"] = dag
        with open_capture(
            self.definition,
            state.url,
            state_schema=state.schema,
            secrets=self.properties(),
            storage_secrets=storage_options(self.storage_conn_id),
            connections=connections,
            owner=owner,
            lease_ttl_s=lease_ttl_s,
            lease_wait_s=lease_wait_s,
            sinks=[to_airflow],
        ) as capture:
            yield capture

    def source_key(self) -> tuple[str, str]:
        """What is the same for connectors that can share a source: see :func:`~airflow_provider_cdc.connector.source_key`.

        :raises ConfigError: there is no such kind of source, or the definition holds a secret
        """
        refuse_secrets(self.definition)
        return self.conn_id, source_key(self.definition)

    def open_source(self, properties: dict[str, Any]) -> Source:
        """The source; close it after use.

        :param properties: from the connection, as :meth:`properties` has them
        """
        return open_source(self.definition, properties)

    def end_of_log(self, properties: dict[str, Any]) -> Position:
        """Where the source's log ends now, asked for with a connection that is closed again.

        :param properties: from the connection, as :meth:`properties` has them
        :raises CdcError: the source cannot be asked
        """
        with self.open_source(properties) as source:
            return source.current_position()

    def changes(self, properties: dict[str, Any]) -> Changes:
        """Tells by the state and the end of the log whether there is anything to capture; see :meth:`open_source`."""
        return Changes(self.definition, properties)

    def probe(self) -> ChangesProbe:
        """A probe that looks for changes to capture; close it after use."""
        state = CdcStateHook(self.state_conn_id).address()
        return ChangesProbe(self.definition, state.url, state_schema=state.schema, secrets=self.properties())

    @contextlib.contextmanager
    def lifecycle(self) -> Iterator[Lifecycle]:
        """The connector's lifecycle: pause, offsets, gaps, deletion."""
        state = CdcStateHook(self.state_conn_id).address()
        with open_lifecycle(
            self.definition,
            state.url,
            state_schema=state.schema,
            secrets=self.properties(),
            storage_secrets=storage_options(self.storage_conn_id),
        ) as lifecycle:
            yield lifecycle

    @contextlib.contextmanager
    def verification(self, *, scratch: str | None = None, keep: bool = False) -> Iterator[Verification]:
        """A comparison of the connector's tables with the source, to be prepared.

        :param scratch: where its scratch change log is, by default below the connector's
        :param keep: leave it there
        """
        from airflow_provider_cdc.verify.reference import open_verification

        state = CdcStateHook(self.state_conn_id).address()
        with open_verification(
            self.definition,
            state.url,
            state_schema=state.schema,
            secrets=self.properties(),
            storage_secrets=storage_options(self.storage_conn_id),
            scratch=scratch,
            keep=keep,
        ) as verification:
            yield verification

    def current(self) -> ConnectorAccess:
        """The same connector, without the recorded properties that its Airflow connection sets now."""
        now = self.properties()
        kept = {name: value for name, value in self.definition.properties.items() if name not in now}
        return replace(self, definition=replace(self.definition, properties=kept))

    def changelog(self) -> ChangeLog:
        """The change log."""
        from airflow_provider_cdc.changelog.files.change_log import ChangeLog

        options = {**self.definition.changelog_options, **storage_options(self.storage_conn_id)}
        return ChangeLog(self.definition.changelog, options)

    def properties(self) -> dict[str, Any]:
        """The properties from the connection. They contain secrets.

        :raises ConfigError: there is no such connection, or the definition, which is shown, holds a secret
        """
        refuse_secrets(self.definition)
        return CdcSourceHook(self.conn_id, source=self.definition.source).properties()


def storage_options(conn_id: str | None) -> dict[str, Any]:
    """fsspec options in the extra of a connection. They contain secrets.

    :raises ConfigError: the extra is not a JSON object
    """
    if not conn_id:
        return {}
    connection = BaseHook.get_connection(conn_id)
    remedy = 'give fsspec options of the change log\'s filesystem, for example {"key": "…", "secret": "…"}'
    extra = extra_of(connection, remedy)
    for secret in secret_values(extra):  # Airflow knows some of the names by itself
        mask_secret(secret)
    return extra


def access_of(connector: ConnectorRecord, state_conn_id: str = DEFAULT_CONN_ID) -> ConnectorAccess | None:
    """The definition and connections of a connector's last run; ``None`` if they are not recorded."""
    known = connector.registration
    if known is None:
        return None
    definition = ConnectorDefinition(
        known.connector, known.source, known.changelog, known.properties, known.changelog_options
    )
    connections = known.connections
    return ConnectorAccess(
        definition, connections.get("source", ""), connections.get("state", state_conn_id), connections.get("storage")
    )


def find_connector(store: StateStore, connector: str) -> ConnectorRecord:
    """The record of one connector in the state tables.

    :raises CdcError: there is none; the error names those there are
    """
    if (found := store.connector(connector)) is not None:
        return found
    names = ", ".join(other.connector for other in store.connectors()) or "none"
    raise CdcError(f"No connector {connector!r} has run yet.", where=f"connectors in the state tables: {names}")
