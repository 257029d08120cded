"""A connector as tasks, triggers and commands know it: its definition, and the ids of its Airflow connections.

Nothing here holds a secret, so that it may be serialized. Secrets are looked up when something is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.log import mask_secret

from airflow_provider_cdc.connector import (
    ChangeCheck,
    ChangesProbe,
    ConnectorDefinition,
    open_capture,
    open_lifecycle,
    open_source,
    refuse_secrets,
    source_key,
)
from airflow_provider_cdc.core.config.secret_redaction import secret_values
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.airflow_stats import to_airflow
from airflow_provider_cdc.hooks.cloud_credentials import translate_storage
from airflow_provider_cdc.hooks.connection_extra import extra_of
from airflow_provider_cdc.hooks.connection_lookup import find_connection
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderJob
    from airflow_provider_cdc.core.capture.connector_capture import Capture
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, TaskRun
    from airflow_provider_cdc.state.state_store import StateStore
    from airflow_provider_cdc.verify.reference_capture import Verification


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

    def to_document(self) -> dict[str, Any]:
        """Convert it to JSON; :meth:`from_document` is the way back."""
        return {"definition": self.definition.to_document(), "conn_id": self.conn_id} | {
            "state_conn_id": self.state_conn_id,
            "storage_conn_id": self.storage_conn_id,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> ConnectorAccess:
        return cls(**{**document, "definition": ConnectorDefinition(**document["definition"])})

    @contextlib.contextmanager
    def prepare_capture(
        self,
        *,
        owner: str,
        lease_ttl_s: float,
        lease_wait_s: float,
        dag: str | None = None,
        adopt: bool = False,
        reader_job: ReaderJob | None = None,
        task_run: TaskRun | None = None,
    ) -> Iterator[Capture]:
        """Open a capture that is ready to run.

        :param dag: id of the DAG that captures: users who may see it may see the connector
        :param adopt: take over the connector of this name, although it has another source or change log
        :param reader_job: the job whose processes read the tables of snapshots on Spark
        :param task_run: the try of the task that captures
        """
        state = CdcStateHook(self.state_conn_id).resolve_address()
        connections = {"source": self.conn_id, "state": self.state_conn_id}
        if self.storage_conn_id:
            connections["storage"] = self.storage_conn_id
        if dag is not None:
            connections["dag"] = dag
        with open_capture(
            self.definition,
            state.url,
            state_schema=state.schema,
            secrets=self.resolve_properties(),
            storage_secrets=storage_options(self.storage_conn_id),
            connections=connections,
            owner=owner,
            lease_ttl_s=lease_ttl_s,
            lease_wait_s=lease_wait_s,
            sinks=[to_airflow],
            adopt=adopt,
            reader_job=reader_job,
            task_run=task_run,
        ) as capture:
            yield capture

    def source_key(self) -> tuple[str, str]:
        """Return a key that is equal for connectors that can share a source.

        See :func:`~airflow_provider_cdc.connector.source_key`.

        :raises ConfigError: there is no such kind of source, or the definition holds a secret
        """
        refuse_secrets(self.definition)
        return self.conn_id, source_key(self.definition)

    def open_source(self, properties: dict[str, Any]) -> Source:
        """Open the source; close it after use.

        :param properties: from the connection, as :meth:`resolve_properties` has them
        """
        return open_source(self.definition, properties)

    def end_of_log(self, properties: dict[str, Any]) -> Position:
        """Read where the source's log ends now, with a connection that is closed again.

        :param properties: from the connection, as :meth:`resolve_properties` has them
        :raises CdcError: the source cannot be queried
        """
        with self.open_source(properties) as source:
            return source.current_position()

    def build_change_check(self, properties: dict[str, Any]) -> ChangeCheck:
        """Build the check for anything to capture, by the state and the end of the log; see :meth:`open_source`."""
        return ChangeCheck(self.definition, properties)

    def open_probe(self) -> ChangesProbe:
        """Build a probe that looks for changes to capture; close it after use."""
        state = CdcStateHook(self.state_conn_id).resolve_address()
        return ChangesProbe(self.definition, state.url, state_schema=state.schema, secrets=self.resolve_properties())

    @contextlib.contextmanager
    def prepare_lifecycle(self) -> Iterator[ConnectorLifecycle]:
        """Open the connector's lifecycle: pause, offsets, gaps, deletion."""
        state = CdcStateHook(self.state_conn_id).resolve_address()
        with open_lifecycle(
            self.definition,
            state.url,
            state_schema=state.schema,
            secrets=self.resolve_properties(),
            storage_secrets=storage_options(self.storage_conn_id),
        ) as lifecycle:
            yield lifecycle

    @contextlib.contextmanager
    def prepare_verification(self, *, scratch: str | None = None, keep: bool = False) -> Iterator[Verification]:
        """Open a comparison of the connector's tables with the source, to be prepared.

        :param scratch: where its scratch change log is, by default below the connector's
        :param keep: leave it there
        """
        from airflow_provider_cdc.verify.reference_capture import open_verification

        state = CdcStateHook(self.state_conn_id).resolve_address()
        with open_verification(
            self.definition,
            state.url,
            state_schema=state.schema,
            secrets=self.resolve_properties(),
            storage_secrets=storage_options(self.storage_conn_id),
            scratch=scratch,
            keep=keep,
        ) as verification:
            yield verification

    def use_current_connection(self) -> ConnectorAccess:
        """Return the same connector, without the recorded properties that its Airflow connection sets now."""
        now = self.resolve_properties()
        own_properties = {name: value for name, value in self.definition.properties.items() if name not in now}
        return replace(self, definition=replace(self.definition, properties=own_properties))

    def open_change_log(self) -> ChangeLog:
        """Open the change log."""
        from airflow_provider_cdc.changelog.files.change_log import ChangeLog

        options = {**self.definition.changelog_options, **storage_options(self.storage_conn_id)}
        return ChangeLog(self.definition.changelog, options)

    def resolve_properties(self) -> dict[str, Any]:
        """Return the properties from the connection. They contain secrets.

        :raises ConfigError: there is no such connection, or the definition, which is shown, holds a secret
        """
        refuse_secrets(self.definition)
        return CdcSourceHook(self.conn_id, source=self.definition.source).resolve_properties()


def storage_options(conn_id: str | None) -> dict[str, Any]:
    """Return the fsspec options in the extra of a connection, or those that a connection to a cloud provider stands for.

    They contain secrets.

    :raises ConfigError: the connection does not exist, or its extra is not a JSON object
    :raises StorageUnavailable: AWS gives no credentials for the role of the connection
    """
    if not conn_id:
        return {}
    connection = find_connection(conn_id, "with the options of the change log's filesystem", "storage_conn_id")
    remedy = 'give fsspec options of the change log\'s filesystem, for example {"key": "…", "secret": "…"}'
    translated = translate_storage(connection)
    extra = extra_of(connection, remedy) if translated is None else translated
    for secret in secret_values(extra):  # Airflow knows some of the names by itself
        mask_secret(secret)
    return extra


def access_of(connector: ConnectorRecord, state_conn_id: str = DEFAULT_CONN_ID) -> ConnectorAccess | None:
    """Return the definition and connections of a connector's last run; ``None`` if they are not recorded."""
    registration = connector.registration
    if registration is None:
        return None
    definition = ConnectorDefinition(
        registration.connector,
        registration.source,
        registration.changelog,
        registration.properties,
        registration.changelog_options,
    )
    connections = registration.connections
    return ConnectorAccess(
        definition, connections.get("source", ""), connections.get("state", state_conn_id), connections.get("storage")
    )


def find_connector(store: StateStore, connector: str) -> ConnectorRecord:
    """Return the record of one connector in the state tables.

    :raises CdcError: there is none; the error names those there are
    """
    if (record := store.find_connector(connector)) is not None:
        return record
    names = ", ".join(other.connector for other in store.list_connectors()) or "none"
    raise CdcError(f"No connector {connector!r} has run yet.", where=f"connectors in the state tables: {names}")
