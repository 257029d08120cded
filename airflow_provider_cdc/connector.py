"""Opens captures and lifecycles: puts a connector definition, its source, the state store and the change log together.

The Airflow face, the benchmarks and users' own scripts all use it. It does not need Airflow.

    >>> definition = ConnectorDefinition(
    ...     name="shop", source="mariadb", changelog="s3://lake/changelog", properties={"topic.prefix": "shop"})
    >>> with open_capture(definition, state_url, secrets={"database.password": "…"}) as capture:
    ...     print(capture.run().events)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.config.secret_redaction import find_credentials, secret_options
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources import config_class, load_source

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderJob
    from airflow_provider_cdc.core.capture.connector_capture import Capture
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.core.model.connector_offset import Offset
    from airflow_provider_cdc.core.model.position import Position
    from airflow_provider_cdc.core.model.table_schema import TableSchema
    from airflow_provider_cdc.core.reporting.metrics_monitor import Sink
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.core.spi.source_block_formats import EventForm
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, ConnectorRegistration, TaskRun
    from airflow_provider_cdc.state.state_store import StateStore

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    """The definition of a connector, as users write it. Light: it is made at DAG parse.

    :param name: unique name; part of paths, assets and state
    :param source: kind of source, see ``airflow_provider_cdc.sources.SOURCES``
    :param changelog: folder or object store prefix of the change log
    :param properties: documented properties, without secrets
    :param changelog_options: fsspec options of the change log's filesystem, without secrets
    """

    name: str
    source: str
    changelog: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    changelog_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} is not a valid connector name.",
                remedy="use letters, digits, dots, hyphens and underscores, at most 200 characters, beginning with a letter or digit",
            )

    def to_document(self) -> dict[str, Any]:
        """Return the definition as JSON; ``ConnectorDefinition(**document)`` is equal to it."""
        return {
            "name": self.name,
            "source": self.source,
            "changelog": self.changelog,
            "properties": dict(self.properties),
            "changelog_options": dict(self.changelog_options),
        }

    def compute_digest(self) -> str:
        """Return a text that another definition does not have.

        >>> ConnectorDefinition("shop", "mariadb", "/lake").compute_digest()
        'c0ffee…'
        """
        document = json.dumps(self.to_document(), sort_keys=True, default=str)
        return hashlib.sha256(document.encode()).hexdigest()[:16]


def refuse_secrets(definition: ConnectorDefinition) -> None:
    """Make sure that a definition, which is shown and stored, holds no secret.

    :raises ConfigError: it does
    """
    secret, properties = config_class(definition.source).is_secret, definition.properties
    found = [name for name, value in properties.items() if secret(name) or find_credentials(name, value)]
    found += [f"changelog_options[{name}]" for name in secret_options(definition.changelog_options)]
    if find_credentials("changelog.url", definition.changelog):
        found.append("changelog")
    if found:
        raise ConfigError(
            f"The definition of connector {definition.name} holds a secret: {', '.join(sorted(found))}.",
            safe="Definitions are shown and stored; secrets come from Airflow connections only.",
            remedy="remove it: put the login and password of the source into its connection, and those of the change log's storage into "
            "the extra of a separate connection, which storage_conn_id names",
        )


def parse_config(definition: ConnectorDefinition, secrets: Mapping[str, Any] | None = None) -> ConnectorConfig:
    """Check a definition's properties.

    :param secrets: properties from the connection (host, user, password); the definition's own win
    :raises ConfigError: something cannot be used, or the definition holds a secret
    """
    refuse_secrets(definition)
    properties = {"topic.prefix": definition.name, **(secrets or {}), **definition.properties}
    return load_source(definition.source).Config.parse(properties).of_connector(definition.name)


def build_signing_key(source: str, secrets: Mapping[str, Any]) -> str:
    """Build the key of the messages between a capture and the readers of its snapshot: both have the secrets of the source.

    A secret may be within an address, too.

    :param source: kind of source
    :param secrets: properties from the connection
    """
    is_secret = config_class(source).is_secret
    found = {name: value if is_secret(name) else find_credentials(name, value) for name, value in secrets.items()}
    return json.dumps({name: value for name, value in found.items() if value}, sort_keys=True, default=str)


def source_key(definition: ConnectorDefinition) -> str:
    """Return the key of connectors that can share the end of a source's log, if they have the same connection too.

    >>> orders = ConnectorDefinition("orders", "mariadb", "/lake", {"database.server.id": 1, "table.include.list": "shop.orders"})
    >>> lines = ConnectorDefinition("lines", "mariadb", "/lake", {"database.server.id": 2, "table.include.list": "shop.lines"})
    >>> source_key(orders) == source_key(lines)
    True
    """
    asked = config_class(definition.source).of_the_source(definition.properties)
    return json.dumps([definition.source, asked], sort_keys=True, default=str)


def open_source(definition: ConnectorDefinition, secrets: Mapping[str, Any] | None = None) -> Source:
    """Open the definition's source; close it after use."""
    return load_source(definition.source)(parse_config(definition, secrets))  # type: ignore[call-arg]


def event_form(source: str, name: str) -> EventForm | None:
    """Return a form of a source's events, for :class:`airflow_provider_cdc.changelog.debezium.record_renderer.DebeziumRenderer`.

    :param source: kind of source
    :param name: ``debezium`` is the usual form, which is ``None``
    :raises ConfigError: there is no such form; the error names those there are
    """
    from airflow_provider_cdc.core.spi.source_block_formats import USUAL, select_event_form

    return None if name == USUAL else select_event_form(load_source(source).FORMS, name, source)


@contextlib.contextmanager
def open_capture(
    definition: ConnectorDefinition,
    state_url: str,
    *,
    state_schema: str | None = None,
    secrets: Mapping[str, Any] | None = None,
    storage_secrets: Mapping[str, Any] | None = None,
    connections: Mapping[str, str] | None = None,
    owner: str | None = None,
    lease_ttl_s: float = 30.0,
    lease_wait_s: float = 60.0,
    sinks: Sequence[Sink] = (),
    like: Iterable[TableSchema] = (),
    adopt: bool = False,
    reader_job: ReaderJob | None = None,
    task_run: TaskRun | None = None,
) -> Iterator[Capture]:
    """Open a capture that is ready to run.

    :param state_schema: database schema of the state tables, where it is not the default one
    :param connections: ids of the connections that the secrets came from, so that a later reader can look them up; recorded in the state
    :param owner: name of the run, as the lease and errors show it
    :param sinks: take what the run measures, besides the state tables
    :param like: tables as another connector of the same source has them, with which the rows are compared
    :param adopt: take over the connector of this name, although it has another source or change log
    :param reader_job: the job whose processes read the tables of snapshots on Spark
    :param task_run: the try of a task that captures, which is recorded with a failure
    :raises StateError: the state tables are not there
    :raises ConfigError: there is another connector of this name
    """
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderCoordinator
    from airflow_provider_cdc.channels import open_channels, open_notifications
    from airflow_provider_cdc.core.capture.connector_capture import Capture
    from airflow_provider_cdc.core.config.capture_filters import Filters
    from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
    from airflow_provider_cdc.state.state_store import StateStore

    config = parse_config(definition, secrets)
    notification_channels = open_notifications(config)
    store = StateStore(state_url, schema=state_schema, lease_ttl_s=lease_ttl_s)
    try:
        store.check_tables()
        registration = build_registration(definition, config, connections)
        recorded = store.find_registration(definition.name)
        changelog = ChangeLog(definition.changelog, {**definition.changelog_options, **(storage_secrets or {})})
        if recorded is not None and not adopt:
            _refuse_other_connector(recorded, registration, store, changelog)
        later = recorded is not None and _is_of_other_dag(recorded, registration)
        if not later:
            store.register_connector(registration)
        with open_source(definition, secrets) as source, contextlib.ExitStack() as stack:
            source.adopt_columns(like)
            channels = open_channels(config, definition.name)
            for channel in channels:
                stack.callback(channel.close)
            inputs = RunInputs(
                definition.name,
                source,
                config,
                Filters(config),
                store,
                changelog,
                channels,
                notification_channels,
                (store.metrics.add_measurements, *sinks),
                (lambda: store.register_connector(registration)) if later else None,
                definition.compute_digest(),
                None
                if reader_job is None
                else lambda: ReaderCoordinator(
                    changelog.storage,
                    definition.to_document(),
                    build_signing_key(definition.source, secrets or {}),
                    reader_job,
                    config.snapshot_max_threads,
                ),
            )
            yield Capture(inputs, owner=owner, lease_wait_s=lease_wait_s, task_run=task_run)
    finally:
        store.close()


def _refuse_other_connector(
    recorded: ConnectorRegistration, registration: ConnectorRegistration, store: StateStore, changelog: ChangeLog
) -> None:
    """Refuse a run that would take the name of another connector, and with it its offset.

    A change log that was moved to another place keeps its identity, so it is not another one.

    :raises ConfigError: it has another source or change log
    """
    differing = [
        f"{what} {old} instead of {new}"
        for what, old, new in (
            ("source", recorded.source, registration.source),
            ("change log", recorded.changelog.rstrip("/"), registration.changelog.rstrip("/")),
        )
        if old != new
    ]
    if not differing or (
        recorded.source == registration.source and _is_moved(registration.connector, store, changelog)
    ):
        return
    dag = recorded.connections.get("dag")
    raise ConfigError(
        f"There is another connector {registration.connector}: it has the {' and the '.join(differing)}.",
        where=f"captured by the DAG {dag}" if dag else "",
        safe="Nothing was read or changed.",
        remedy='give this connector another name. If it is the same one, which has moved, set adopt=True until a run has succeeded: CaptureOperator(…, adopt=True) or group={"adopt": True} of cdc_dag',
    )


def _is_moved(connector: str, store: StateStore, changelog: ChangeLog) -> bool:
    """Check whether a change log has the batches that the offset is about."""
    offset = store.load_offset(connector).offset
    return offset is not None and bool(offset.changelog) and changelog.read_identity(connector) == offset.changelog


def _is_of_other_dag(recorded: ConnectorRegistration, registration: ConnectorRegistration) -> bool:
    dags = recorded.connections.get("dag"), registration.connections.get("dag")
    return None not in dags and dags[0] != dags[1]


@contextlib.contextmanager
def open_lifecycle(
    definition: ConnectorDefinition,
    state_url: str,
    *,
    state_schema: str | None = None,
    secrets: Mapping[str, Any] | None = None,
    storage_secrets: Mapping[str, Any] | None = None,
    patience_s: float = 60.0,
) -> Iterator[ConnectorLifecycle]:
    """Open the lifecycle of a connector: pause, offsets, gaps, deletion.

    The source is connected to when it is first needed.

    :param patience_s: how long an unreachable state database is tried again
    :raises StateError: the state tables are not there
    """
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.state.state_store import StateStore

    config = parse_config(definition, secrets)
    store = StateStore(state_url, schema=state_schema, patience_s=patience_s)
    try:
        store.check_tables()
        changelog = ChangeLog(definition.changelog, {**definition.changelog_options, **(storage_secrets or {})})
        with open_source(definition, secrets) as source:
            yield ConnectorLifecycle(definition.name, store, changelog, source, config)
    finally:
        store.close()


class ChangeCheck:
    """A check whether a capture of a connector would find anything. Holds no connection.

    The connector's state tables and the end of its source's log decide.

        >>> found = changes.in_state(store.records(["shop"]).get("shop"), store)
        >>> found if isinstance(found, str | None) else changes.explain_log_progress(found, source.current_position())
        'the log has advanced to binlog.000012:4711'

    :param secrets: properties from the connection
    :raises ConfigError: the definition cannot be used
    """

    def __init__(self, definition: ConnectorDefinition, secrets: Mapping[str, Any] | None = None) -> None:
        self._name = definition.name
        config = parse_config(definition, secrets)
        self._properties = build_registration(definition, config).properties
        self._source = load_source(definition.source)(config)  # type: ignore[call-arg]

    def in_state(self, record: ConnectorRecord | None, store: StateStore) -> str | Offset | None:
        """Why there is something to capture, whatever the log says; ``None`` if nothing is to be captured. Otherwise the log decides: the offset.

        :param record: what the state tables hold of the connector, as ``StateStore.load_records`` gives it
        """
        from airflow_provider_cdc.core.capture.pending_work_check import find_pending_work

        if record is not None and record.control.desired_state != "running":
            return None
        if found := find_pending_work(self._name, record, self._properties, store):
            return found
        assert record is not None
        return record.offset

    def explain_log_progress(self, offset: Offset, end: Position) -> str | None:
        """Explain that the log has continued since the offset; ``None`` if it has not.

        :param end: of the log
        """
        from airflow_provider_cdc.core.capture.pending_work_check import gone_on

        return gone_on(self._source, offset, end)


class ChangesProbe:
    """Checks cheaply whether a capture of a connector would find anything, with separate connections. Not thread-safe.

        >>> probe.explain_changes()
        'the log has advanced to binlog.000012:4711'

    :raises ConfigError: the definition cannot be used
    """

    def __init__(
        self,
        definition: ConnectorDefinition,
        state_url: str,
        *,
        state_schema: str | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> None:
        from airflow_provider_cdc.state.state_store import StateStore

        self._name, self._changes = definition.name, ChangeCheck(definition, secrets)
        self.source = open_source(definition, secrets)
        self._store = StateStore(state_url, schema=state_schema)

    def explain_changes(self) -> str | None:
        """Why there is something to capture; ``None`` if there is not.

        :raises CdcError: the source cannot be reached
        """
        found = self._changes.in_state(self._store.load_records([self._name]).get(self._name), self._store)
        if found is None or isinstance(found, str):
            return found
        return self._changes.explain_log_progress(found, self.source.current_position())

    def close(self) -> None:
        """Close every connection; may be called twice."""
        self.source.close()
        self._store.close()


def build_registration(
    definition: ConnectorDefinition, config: ConnectorConfig, connections: Mapping[str, str] | None = None
) -> ConnectorRegistration:
    """Build the registration of a run's definition for the state tables; it holds no secret."""
    from airflow_provider_cdc.core.capture.pending_work_check import to_registered_properties
    from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration

    return ConnectorRegistration(
        definition.name,
        definition.source,
        definition.changelog,
        dict(definition.changelog_options),
        to_registered_properties(config),
        dict(connections or {}),
    )
