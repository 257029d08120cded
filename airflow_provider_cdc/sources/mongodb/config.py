"""Properties of the MongoDB source.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self
from urllib.parse import unquote

from pydantic import Field, SecretStr, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mongodb.config_enums import (
    ENCRYPTION,
    TEMPORARY,
    CaptureMode,
    CaptureScope,
    FullUpdateType,
    OversizeHandling,
    PipelineOrder,
    Stages,
)
from airflow_provider_cdc.sources.mongodb.document_format_config import DocumentFormatConfig, with_schemas
from airflow_provider_cdc.sources.mongodb.field_rules import (
    FieldRule,
    parse_excluded_fields,
    parse_renamed_fields,
    parts_of,
)
from airflow_provider_cdc.sources.mongodb.filter_overrides import with_filters
from airflow_provider_cdc.sources.mongodb.tls_config import TlsConfig

log = logging.getLogger(__name__)

_URI = re.compile(r"mongodb(\+srv)?://", re.IGNORECASE)
_DEPRECATED_HOSTS = re.compile(r"(?:(?P<set>[^/,]+)/)?(?P<hosts>[^/]+)")
_OPTIONS = frozenset(
    [
        "replicaset",
        "directconnection",
        "loadbalanced",
        "srvservicename",
        "srvmaxhosts",
        "authsource",
        "authmechanism",
        "authmechanismproperties",
        "tls",
        "ssl",
        "tlscafile",
        "tlscertificatekeyfile",
        "tlscrlfile",
        "tlsallowinvalidcertificates",
        "tlsallowinvalidhostnames",
        "tlsinsecure",
        "tlsdisableocspendpointcheck",
        "compressors",
        "zlibcompressionlevel",
        "connecttimeoutms",
        "sockettimeoutms",
        "serverselectiontimeoutms",
        "waitqueuetimeoutms",
        "timeoutms",
        "localthresholdms",
        "heartbeatfrequencyms",
        "serverselectiontryonce",
        "servermonitoringmode",
        "maxpoolsize",
        "minpoolsize",
        "maxidletimems",
        "maxconnecting",
        "readconcernlevel",
        "readpreference",
        "readpreferencetags",
        "maxstalenessseconds",
        "retryreads",
        "retrywrites",
        "w",
        "wtimeoutms",
        "journal",
        "appname",
        "uuidrepresentation",
    ]
)
"""Options of a connection string, in lower case."""
_MECHANISMS = frozenset({"DEFAULT", "SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509", "MONGODB-AWS", "GSSAPI", "PLAIN"})
"""``MONGODB-OIDC`` would read the token of the machine's own service account and send it to any host."""
_MECHANISM_PROPERTIES = frozenset({"SERVICE_NAME", "SERVICE_REALM", "SERVICE_HOST", "CANONICALIZE_HOST_NAME"})
_MOST_SIZE = 16 * 1024 * 1024


class MongoDbConfig(DocumentFormatConfig, TlsConfig):
    """Documented names and defaults (Debezium MongoDB connector, "Connector properties")."""

    mongodb_connection_string: str = Field(
        alias="mongodb.connection.string",
        min_length=1,
        description="Connection string of the replica set or of the routers (mongos), without user name and password; "
        "comes from the Airflow connection.",
    )
    mongodb_port: int = Field(
        27017,
        alias="mongodb.port",
        ge=1,
        le=65535,
        description="Not in Debezium. Port, if the connection has only a host.",
    )
    mongodb_user: str = Field("", alias="mongodb.user", description="Account; comes from the Airflow connection.")
    mongodb_password: SecretStr = Field(
        SecretStr(""),
        alias="mongodb.password",
        description="Password; comes from the Airflow connection, never from a definition.",
    )
    mongodb_authsource: str = Field(
        "admin", alias="mongodb.authsource", min_length=1, description="Authentication database of the account."
    )
    mongodb_connect_timeout_ms: int = Field(
        10_000, alias="mongodb.connect.timeout.ms", ge=1, description="How long connecting may take."
    )
    mongodb_socket_timeout_ms: int = Field(
        0, alias="mongodb.socket.timeout.ms", ge=0, description="How long a response may take; 0 = no limit."
    )
    mongodb_server_selection_timeout_ms: int = Field(
        30_000,
        alias="mongodb.server.selection.timeout.ms",
        ge=1,
        description="How long to search for an available member.",
    )
    mongodb_heartbeat_frequency_ms: int = Field(
        10_000,
        alias="mongodb.heartbeat.frequency.ms",
        ge=500,
        description="How often the state of the members is checked.",
    )
    connect_backoff_initial_delay_ms: int = Field(
        1_000,
        alias="connect.backoff.initial.delay.ms",
        ge=1,
        description="First wait if the replica set has no primary.",
    )
    connect_backoff_max_delay_ms: int = Field(
        120_000,
        alias="connect.backoff.max.delay.ms",
        ge=1,
        description="Longest wait; each wait is twice as long as the previous one.",
    )
    connect_max_attempts: int = Field(
        16,
        alias="connect.max.attempts",
        ge=1,
        description="How often a lost stream is opened again before the run fails.",
    )
    database_include_list: Patterns = Field(
        (), alias="database.include.list", description="Databases to capture; all others are excluded."
    )
    database_exclude_list: Patterns = Field((), alias="database.exclude.list", description="Databases to exclude.")
    collection_include_list: Patterns = Field(
        (),
        alias="collection.include.list",
        description="Collections to capture, as database.collection; all others are excluded.",
    )
    collection_exclude_list: Patterns = Field(
        (), alias="collection.exclude.list", description="Collections to exclude."
    )
    capture_mode: CaptureMode = Field(
        CaptureMode.UPDATE_FULL,
        alias="capture.mode",
        description="Content of update events: change_streams contains the change description only, with _update_full also "
        "the whole document, with _with_pre_image also the document before the change.",
    )
    capture_mode_full_update_type: FullUpdateType = Field(
        FullUpdateType.LOOKUP,
        alias="capture.mode.full.update.type",
        description="Source of the whole document of an update: lookup is the document at the time of the read; post_image is "
        "the document right after the update, which requires that the collection records images.",
    )
    capture_scope: CaptureScope = Field(
        CaptureScope.DEPLOYMENT,
        alias="capture.scope",
        description="Scope of the change stream: the deployment, a database, or a collection.",
    )
    capture_target: str | None = Field(
        None,
        alias="capture.target",
        description="With capture.scope=database or collection: its name, as database or database.collection.",
    )
    field_exclude_list: str = Field(
        "",
        alias="field.exclude.list",
        description="Fields to exclude, as database.collection.field.nested; * matches any database or collection.",
    )
    field_renames: str = Field(
        "",
        alias="field.renames",
        description="Fields to rename, as database.collection.field.nested:newName, applied in this order.",
    )
    cursor_pipeline: Stages = Field(
        (), alias="cursor.pipeline", description="Custom pipeline stages for the change stream, as a JSON array."
    )
    cursor_pipeline_order: PipelineOrder = Field(
        PipelineOrder.INTERNAL_FIRST,
        alias="cursor.pipeline.order",
        description="Whether the custom stages run after the connector's stages, before them (user_first), or instead "
        "of them (user_only).",
    )
    cursor_max_await_time_ms: int = Field(
        0,
        alias="cursor.max.await.time.ms",
        ge=0,
        description="How long the server waits for an event; 0 = the value of poll.interval.ms.",
    )
    cursor_oversize_handling_mode: OversizeHandling = Field(
        OversizeHandling.FAIL,
        alias="cursor.oversize.handling.mode",
        description="Handling of events larger than 16 MB: fail fails with an error that names a remedy, skip omits documents "
        "larger than cursor.oversize.skip.threshold, split lets the server send the event in parts (MongoDB 6.0.9 "
        "and newer).",
    )
    cursor_oversize_skip_threshold: int = Field(
        0,
        alias="cursor.oversize.skip.threshold",
        ge=0,
        description="With cursor.oversize.handling.mode=skip: the maximum size of a document, in bytes.",
    )
    snapshot_fetch_size: int = Field(
        10_240,
        alias="snapshot.fetch.size",
        description="Documents per batch of a snapshot query; 0 = as many as the server sends (up to 16 MB).",
        ge=0,
    )
    snapshot_collection_filter_overrides: dict[str, str] = Field(
        {},
        alias="snapshot.collection.filter.overrides",
        description="Names of collections. The property with this name, a dot and the collection name contains the filter for "
        "snapshots of the collection, a document in extended JSON. The stream captures all documents.",
    )
    TABLES: ClassVar[tuple[str, str]] = ("collection.include.list", "collection.exclude.list")
    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"host": "Connection string, or host", "login": "User", "schema": "Authentication database of the user"},
        placeholders={
            "host": "mongodb://a.example.org,b.example.org/?replicaSet=rs0",
            "login": "cdc",
            "schema": "admin",
        },
        extras={
            "mongodb.ssl.enabled": "true for TLS",
            "mongodb.ssl.ca": "file of trusted certificates, on the workers",
            "mongodb.ssl.certificate": "file of the client's certificate and key, on the workers",
            "mongodb.ssl.invalid.hostname.allowed": "true: the certificate need not match the host",
        },
    )
    CONNECTION: ClassVar[Mapping[str, str]] = {
        "host": "mongodb.connection.string",
        "port": "mongodb.port",
        "login": "mongodb.user",
        "password": "mongodb.password",
        "schema": "mongodb.authsource",
    }
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = (
        "mongodb.ssl.certificate.password",
        "mongodb.connect.timeout.ms",
        "mongodb.socket.timeout.ms",
        "mongodb.server.selection.timeout.ms",
        "mongodb.heartbeat.frequency.ms",
    )
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "database.include.list": PropertyEffect.TABLES,
        "database.exclude.list": PropertyEffect.TABLES,
        "collection.include.list": PropertyEffect.TABLES,
        "collection.exclude.list": PropertyEffect.TABLES,
        "capture.scope": PropertyEffect.TABLES,
        "capture.target": PropertyEffect.TABLES,
        "field.exclude.list": PropertyEffect.COLUMNS,
        "field.renames": PropertyEffect.COLUMNS,
        "document.columns.list": PropertyEffect.FORM,
        "snapshot.collection.filter.overrides": PropertyEffect.QUERIES,
        "cursor.pipeline": PropertyEffect.FORM,
        "document.variant.list": PropertyEffect.FORM,
    }
    IGNORED: ClassVar[Mapping[str, str]] = {
        "mongodb.connection.mode": "the connection string decides: a stream through mongos contains all shards",
        "mongodb.poll.interval.ms": "the driver monitors the members of the deployment automatically",
        "schema.history.internal*": "this source has no schema history, because documents have no schema",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "mongodb.members.auto.discover": "members are always discovered",
        "mongodb.ssl.keystore*": "set mongodb.ssl.certificate to the client's certificate and key as a PEM file: openssl pkcs12 -in "
        "client.p12 -out client.pem",
        "mongodb.ssl.truststore*": "set mongodb.ssl.ca to the trusted certificates as a PEM file",
        "mongodb.authentication.class": "Java classes are not supported; set authMechanism in the connection string",
    }

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        remaining = dict(properties)
        hosts = remaining.pop("mongodb.hosts", None)
        if hosts and not remaining.get("mongodb.connection.string"):
            log.warning("mongodb.hosts is a deprecated property; set mongodb.connection.string.")
            remaining["mongodb.connection.string"] = hosts
        return super().parse(with_schemas(with_filters(remaining)))

    @field_validator("mongodb_connection_string")
    @classmethod
    def _no_secrets(cls, value: str) -> str:
        value = value.strip()
        if _URI.match(value):
            authority = _URI.sub("", value).partition("/")[0].partition("?")[0]
            if "@" in authority:
                raise ValueError(
                    "it must not contain a user, a password or a token: set login and password of the "
                    "Airflow connection"
                )
            _check_options(value.partition("?")[2])
            return value
        if "@" in value:
            raise ValueError(
                "it must not contain a user or a password: set login and password of the Airflow connection"
            )
        if not _DEPRECATED_HOSTS.fullmatch(value):
            raise ValueError("write mongodb://host:port,host:port/?replicaSet=name, or a host")
        return value

    @field_validator("field_exclude_list")
    @classmethod
    def _excluded(cls, value: str) -> str:
        parse_excluded_fields(value)
        return value

    @field_validator("field_renames")
    @classmethod
    def _renamed(cls, value: str) -> str:
        parse_renamed_fields(value)
        return value

    @model_validator(mode="after")
    def _scope_has_a_target(self) -> Self:
        scope, target = self.capture_scope, self.capture_target
        if scope is CaptureScope.DEPLOYMENT:
            if target:
                raise ValueError(
                    "capture.target: has no effect with capture.scope=deployment; set capture.scope, or remove it"
                )
            return self
        parts = parts_of(target or "")
        if scope is CaptureScope.DATABASE and "." in (target or "."):
            raise ValueError("capture.target: required by capture.scope=database: the name of the database")
        if scope is CaptureScope.COLLECTION and not all(parts):
            raise ValueError("capture.target: required by capture.scope=collection: database.collection")
        if named := self.signal_data_collection:
            signals = parts_of(named)
            if not self.in_scope(TableId(namespace=signals[0], name=signals[1])):
                raise ValueError(
                    f"signal.data.collection: a change stream on {scope.value} {target} does not contain events of "
                    f"{named}, so neither signals nor watermarks are captured; set capture.scope=deployment, or "
                    "choose another collection"
                )
        return self

    @model_validator(mode="after")
    def _oversize(self) -> Self:
        if (
            self.cursor_oversize_handling_mode is OversizeHandling.SKIP
            and not 0 < self.cursor_oversize_skip_threshold <= _MOST_SIZE
        ):
            raise ValueError(
                "cursor.oversize.skip.threshold: required by cursor.oversize.handling.mode=skip: 1 to 16777216 bytes"
            )
        return self

    @model_validator(mode="after")
    def _whole_documents(self) -> Self:
        if not self.capture_mode.has_full_document:
            self.refuse_forms(
                f"updates do not contain the whole document with capture.mode={self.capture_mode.value}; set "
                "change_streams_update_full, or change_streams_update_full_with_pre_image"
            )
        self.check_columns()
        return self

    @model_validator(mode="after")
    def _images(self) -> Self:
        if self.capture_mode_full_update_type is FullUpdateType.POST_IMAGE and not self.capture_mode.has_full_document:
            raise ValueError(
                f"capture.mode.full.update.type: has no effect with capture.mode={self.capture_mode.value}; "
                "choose a mode with update_full"
            )
        return self

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        lists = (
            ("database_include_list", "database_exclude_list"),
            ("collection_include_list", "collection_exclude_list"),
        )
        return [*super().exclusive_pairs(), *lists]

    def table_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.collection_include_list, self.collection_exclude_list

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.database_include_list, self.database_exclude_list

    @property
    def connection_uri(self) -> str:
        """The connection string in MongoDB's form, without user and password."""
        text = self.mongodb_connection_string
        if _URI.match(text):
            return text
        match = _DEPRECATED_HOSTS.fullmatch(text)
        assert match is not None
        hosts = [h if ":" in h else f"{h}:{self.mongodb_port}" for h in re.split(r"[,;]\s*", match["hosts"])]
        named = f"?replicaSet={match['set']}" if match["set"] else ""
        return f"mongodb://{','.join(hosts)}/{named}"

    @property
    def display_address(self) -> str:
        """The hosts of the connection string, for people."""
        return unquote(_URI.sub("", self.connection_uri).partition("/")[0].partition("?")[0])

    def in_scope(self, table: TableId) -> bool:
        if TEMPORARY.fullmatch(table.name):
            return False
        if ENCRYPTION.fullmatch(table.name) and not any(
            "enxcol" in pattern for pattern in self.collection_include_list
        ):
            return False
        # an offset has the scope as a text
        if self.capture_scope == CaptureScope.DEPLOYMENT:
            return True
        if self.capture_scope == CaptureScope.DATABASE:
            return table.namespace == self.capture_target
        return str(table) == self.capture_target

    def field_rules(self, table: TableId) -> tuple[FieldRule, ...]:
        """List the rules for fields of a collection, in the order in which they are applied."""
        rules = (*parse_excluded_fields(self.field_exclude_list), *parse_renamed_fields(self.field_renames))
        return tuple(rule for rule in rules if rule.matches_table(table))

    def shows_more(self, before: Self, table: TableId) -> bool:
        return self.field_rules(table) != before.field_rules(table)

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        return f"mongodb://{self.display_address.partition(',')[0]}", str(table)


def _check_options(options: str) -> None:
    """Check the options of a connection string: an editor of an Airflow connection chooses them and the host.

    :raises ValueError: one is not known, holds a secret, or would send credentials of the machine
    """
    for option in filter(None, re.split("[&;]", options)):
        name, _, value = option.partition("=")
        value = unquote(value)
        if name.lower() not in _OPTIONS:
            raise ValueError(
                f"the option {name} is not supported in the connection string; passwords and tokens belong in login and password of the "
                f"Airflow connection. Supported options: {', '.join(sorted(_OPTIONS))}"
            )
        if name.lower() == "authmechanism" and value.upper() not in _MECHANISMS:
            raise ValueError(f"authMechanism={value} is not supported; use one of {', '.join(sorted(_MECHANISMS))}")
        if name.lower() == "authmechanismproperties":
            for pair in value.split(","):
                if pair.partition(":")[0].upper() not in _MECHANISM_PROPERTIES:
                    raise ValueError(
                        f"authMechanismProperties={pair.partition(':')[0]} is not supported; use one of {', '.join(sorted(_MECHANISM_PROPERTIES))}"
                    )
