"""Puts the parts together: a connector definition, its source, the state store and the change log.

The Airflow face, the benchmarks and users' own scripts all go this way; nothing here knows Airflow.

    >>> definition = ConnectorDefinition(
    ...     name="shop", source="mariadb", changelog="s3://lake/changelog", properties={"topic.prefix": "shop"})
    >>> with open_capture(definition, state_url, secrets={"database.password": "…"}) as capture:
    ...     print(capture.run().events)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_cdc.core.config import ConnectorConfig
    from airflow_provider_cdc.core.connector import Capture
    from airflow_provider_cdc.core.source import Source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class ConnectorDefinition:
    """What a user writes down about a connector. Light: it is made at DAG parse.

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
                f"{self.name!r} cannot be a connector's name.",
                remedy="use letters, digits, dots, hyphens and underscores, at most 200, beginning with a letter or digit",
            )


def parse_config(definition: ConnectorDefinition, secrets: Mapping[str, Any] | None = None) -> ConnectorConfig:
    """Check a definition's properties.

    :param secrets: properties from the connection (host, user, password); the definition's own win
    :raises ConfigError: something cannot be used
    """
    from airflow_provider_cdc.sources import load_source

    properties = {"topic.prefix": definition.name, **(secrets or {}), **definition.properties}
    return load_source(definition.source).Config.parse(properties)


def open_source(definition: ConnectorDefinition, secrets: Mapping[str, Any] | None = None) -> Source:
    """The definition's source; close it after use."""
    from airflow_provider_cdc.sources import load_source

    return load_source(definition.source)(parse_config(definition, secrets))  # type: ignore[call-arg]


@contextlib.contextmanager
def open_capture(
    definition: ConnectorDefinition,
    state_url: str,
    *,
    secrets: Mapping[str, Any] | None = None,
    storage_secrets: Mapping[str, Any] | None = None,
    owner: str | None = None,
    lease_ttl_s: float = 30.0,
    lease_wait_s: float = 60.0,
) -> Iterator[Capture]:
    """A capture that is ready to run.

    :param owner: who runs it, for people who look at the lease
    :raises StateError: the state tables are not there
    """
    from airflow_provider_cdc.changelog.log import ChangeLog
    from airflow_provider_cdc.core.connector import Capture
    from airflow_provider_cdc.core.filters import Filters
    from airflow_provider_cdc.state.store import StateStore

    config = parse_config(definition, secrets)
    store = StateStore(state_url, lease_ttl_s=lease_ttl_s)
    try:
        store.verify()
        changelog = ChangeLog(definition.changelog, {**definition.changelog_options, **(storage_secrets or {})})
        with open_source(definition, secrets) as source:
            yield Capture(
                definition.name,
                source,
                config,
                Filters(config),
                store,
                changelog,
                owner=owner,
                lease_wait_s=lease_wait_s,
            )
    finally:
        store.close()
