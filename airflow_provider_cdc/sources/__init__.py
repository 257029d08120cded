"""The databases that changes can be captured from: one folder each, one line each.

Each folder has ``source.py``, with the class that is named here, and beside it ``config.py`` and ``position.py``. Folders do not import
each other. The shared parts of relational databases are in :mod:`.relational`; how kernels are compiled, in :mod:`.jit`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.spi.partial_update_applier import PartialUpdateApplier
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.core.spi.source_procedures import Procedure


class SourceClassPaths(NamedTuple):
    """Class paths of a kind of source, each as ``module:class``.

    :param config: its configuration; the module loads without the database's driver, as every DAG that is parsed loads it
    :param procedures: the object for ``Source.PROCEDURES``, where it has some; the module loads like that of the configuration
    :param updates: the object that applies its partial updates (:class:`~airflow_provider_cdc.core.spi.partial_update_applier.PartialUpdateApplier`), where events have some; the module loads
        without the database's driver
    """

    source: str
    config: str
    procedures: str | None = None
    updates: str | None = None


SOURCES = {
    "memory": SourceClassPaths(f"{__name__}.memory.source:MemorySource", f"{__name__}.memory.config:MemoryConfig"),
    "mysql": SourceClassPaths(f"{__name__}.mysql.source:MySqlSource", f"{__name__}.mysql.config:MySqlConfig"),
    "mariadb": SourceClassPaths(f"{__name__}.mysql.source:MariaDbSource", f"{__name__}.mysql.config:MySqlConfig"),
    "oracle": SourceClassPaths(f"{__name__}.oracle.source:OracleSource", f"{__name__}.oracle.config:OracleConfig"),
    "db2": SourceClassPaths(
        f"{__name__}.db2.source:Db2Source",
        f"{__name__}.db2.config:Db2Config",
        f"{__name__}.db2.capture_procedure_catalog:PROCEDURES",
    ),
    "postgresql": SourceClassPaths(
        f"{__name__}.postgresql.source:PostgresSource", f"{__name__}.postgresql.config:PostgresConfig"
    ),
    "mongodb": SourceClassPaths(
        f"{__name__}.mongodb.source:MongoDbSource",
        f"{__name__}.mongodb.config:MongoDbConfig",
        updates=f"{__name__}.mongodb.documents.partial_update_applier:PARTIAL_UPDATES",
    ),
    "debezium": SourceClassPaths(
        f"{__name__}.debezium.source:DebeziumSource", f"{__name__}.debezium.config:DebeziumConfig"
    ),
}
"""Kind, as connector definitions spell it → its classes."""


def load_source(kind: str) -> type[Source]:
    """Return the class of a kind of source.

    :raises ConfigError: there is no such kind, or its driver is not installed
    """
    path = _kind(kind).source
    try:
        return _load(path)  # type: ignore[no-any-return]
    except ImportError as e:
        raise ConfigError(
            f"The driver of source {kind!r} is not installed: {e}",
            remedy=f"pip install 'airflow-provider-cdc[{path.split('.')[2]}]'",
        ) from e


def config_class(kind: str) -> type[ConnectorConfig]:
    """Return the configuration model of a kind of source, without loading the source and its driver: fit for DAG parse.

    :raises ConfigError: there is no such kind
    """
    return _load(_kind(kind).config)  # type: ignore[no-any-return]


def load_procedures(kind: str) -> Mapping[str, Procedure]:
    """Return the procedures of a kind of source, by name; fit for the help of commands."""
    path = _kind(kind).procedures
    return _load(path) if path is not None else {}


def partial_updates(kind: str) -> PartialUpdateApplier:
    """Return the object that applies the partial updates of a kind of source in targets.

    :raises ConfigError: there is no such kind, or its events have no partial updates
    """
    path = _kind(kind).updates
    if path is None:
        raise ConfigError(f"Events of {kind} have no partial updates.")
    return _load(path)  # type: ignore[no-any-return]


def _kind(kind: str) -> SourceClassPaths:
    if kind not in SOURCES:
        raise ConfigError(f"{kind!r} is not a kind of source. Valid values are: {', '.join(sorted(SOURCES))}.")
    return SOURCES[kind]


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
