"""Connections to the databases that changes are captured from.

Each kind of source has a connection type (``cdc_mariadb``, ``cdc_mysql``, …) and its own hook class, made from the
registry when it is needed. The hook also takes connections of other types, as it uses only the usual fields.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from airflow_provider_cdc.connector import ConnectorDefinition, open_source
from airflow_provider_cdc.core.config.connector_config import NO_CONNECTOR
from airflow_provider_cdc.core.config.secret_redaction import find_credentials
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.connection_extra import extra_of
from airflow_provider_cdc.hooks.connection_lookup import find_connection
from airflow_provider_cdc.hooks.login_extras import resolve_logins
from airflow_provider_cdc.sources import SOURCES, config_class

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
    from airflow_provider_cdc.core.spi.source import Finding, Source

PREFIX = "cdc_"
"""Connection types are this and the kind of source."""


def properties_of(connection: Connection, source: str) -> dict[str, Any]:
    """Return the properties, by their documented names, that a connection sets. They contain secrets.

    :param source: kind of source, which gives the fields their meaning
    :raises ConfigError: the connection's extra is not a JSON object, has properties that do not belong to a connection, or asks for a login
        that this source does not have
    """
    remedy = 'give an object with documented property names, for example {"database.ssl.mode": "required"}'
    properties = config_class(source).from_connection(
        host=connection.host or None,
        port=connection.port or None,
        login=connection.login or None,
        password=connection.password or None,
        schema=connection.schema or None,
        extra=extra_of(connection, remedy),
    )
    properties |= resolve_logins(connection, source)
    if "database.token.provider" in properties:
        properties.pop("database.password", None)
    for name, value in properties.items():
        secrets = [str(value)] if config_class(source).is_secret(name) else find_credentials(name, value)
        for secret in secrets:
            mask_secret(secret)
    return properties


@dataclass(frozen=True)
class SourceInspection:
    """The answer of a connection's source before there is a connector.

    :param queried: whether it was asked; otherwise only a worker can
    """

    findings: list[Finding]
    tables: dict[TableId, TableSchema]
    queried: bool = True


class CdcSourceHook(BaseHook):
    """A connection to a source database.

        >>> CdcSourceHook("inventory_mariadb", source="mariadb").test_connection()
        (True, 'Ready for capture.')

    :param conn_id: Airflow connection
    :param source: kind of source; by default the connection's type says it
    """

    conn_name_attr = "conn_id"
    default_conn_name = "cdc_default"
    conn_type = "cdc"
    hook_name = "CDC: source"

    def __init__(self, conn_id: str = default_conn_name, *, source: str | None = None) -> None:
        super().__init__()
        self.conn_id, self._source = conn_id, source

    def resolve_properties(self) -> dict[str, Any]:
        """Return the properties, by their documented names, that the connection sets. They contain secrets.

        :raises ConfigError: there is no such connection, or it cannot be one to a source
        """
        connection = self._find_connection()
        return properties_of(connection, self._kind(connection))

    def check_prerequisites(self) -> list[Finding]:
        """List the prerequisites of capture that are not met.

        :raises CdcError: the database cannot be reached, or does not allow the queries
        """
        with self._opened() as source:
            return source.check_prerequisites()

    def open_source(self) -> contextlib.AbstractContextManager[Source]:
        """Open the source; there is no connector, so properties have the values that a check needs."""
        return self._opened()

    def inspect_source(
        self, places: Mapping[str, str] = MappingProxyType({}), tables: Sequence[str] = ()
    ) -> SourceInspection:
        """List the prerequisites that are not met, and the tables that could be captured.

        :param places: places to read, if the connection does not name them: properties of :attr:`ConnectionForm.places`. Those that name files are not
            looked at: the files are the workers', and this process may see others
        :param tables: patterns of the tables to capture, if they are known: problems of other tables do not matter then
        :raises ConfigError: another property is among them
        :raises CdcError: the database cannot be reached, or does not allow the queries
        """
        config = config_class(self._kind(self._find_connection()))
        form = config.FORM
        if wrong := sorted(places.keys() - form.places.keys()):
            raise ConfigError(
                f"{', '.join(wrong)} cannot be set for the inspection of a connection.",
                safe="Nothing was queried.",
                remedy=f"give one of {', '.join(form.places)}" if form.places else "omit it",
            )
        if form.places and not places.keys() - {*form.files}:
            return SourceInspection([], {}, queried=False)
        with self._opened({**places, config.TABLES[0]: list(tables)} if tables else places) as source:
            findings = source.check_prerequisites()
        with self._opened(places) as source:
            try:
                return SourceInspection(findings, source.discover_tables())
            except CdcError:
                if any(finding.fatal for finding in findings):  # the findings describe the problem better
                    return SourceInspection(findings, {})
                raise

    @contextlib.contextmanager
    def _opened(self, more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Source]:
        connection = self._find_connection()
        kind = self._kind(connection)
        properties = {**config_class(kind).FORM.stand_ins, **properties_of(connection, kind)}
        with open_source(ConnectorDefinition(NO_CONNECTOR, kind, "", dict(more)), properties) as source:
            yield source

    def test_connection(self) -> tuple[bool, str]:
        """Check every prerequisite of capture; the text names those that are not met, each with the statement that fixes it."""
        try:
            findings = self.check_prerequisites()
        except CdcError as e:
            return False, describe_error(e)
        if not findings:
            return True, "Ready for capture."
        fatal = any(f.fatal for f in findings)
        lines = [f"- {f.problem} {'Repair' if f.fatal else 'Advice'}: {f.fix}" for f in findings]
        return not fatal, "\n".join(["Not ready for capture:" if fatal else "Ready for capture.", *lines])

    def _find_connection(self) -> Connection:
        return find_connection(
            self.conn_id,
            "with which the connector reads its source",
            "the connection name in the connector's definition",
        )

    def _kind(self, connection: Connection) -> str:
        kind = self._source or str(connection.conn_type).removeprefix(PREFIX)
        if kind not in SOURCES:
            raise ConfigError(
                f"Connection {self.conn_id} is of type {connection.conn_type!r}, which is not a source of changes.",
                remedy=f"choose one of {', '.join(PREFIX + k for k in sorted(SOURCES))} as its type",
            )
        return kind


def __getattr__(kind: str) -> type[CdcSourceHook]:
    """Return the hook class of a kind of source: Airflow wants one for each connection type."""
    if kind not in SOURCES:
        raise AttributeError(kind)
    attributes = {"conn_type": f"{PREFIX}{kind}", "hook_name": f"CDC: {kind}"}
    hook_class = type(f"Cdc{kind.capitalize()}Hook", (CdcSourceHook,), attributes)
    globals()[kind] = hook_class
    return hook_class
