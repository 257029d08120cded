"""Inputs of a capture run: a source, the state store, the change log, and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.notifications import NotificationChannel
from airflow_provider_cdc.core.reporting.metrics_monitor import Sink
from airflow_provider_cdc.core.spi.remote_readers import RemoteReaders
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.core.spi.store_interfaces import ChangeLog, SignalChannel, StateStore


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Inputs of a capture run. Nothing of it belongs to one run alone: the next run may have the same.

    :param name: the connector's name, unique in state and change log
    :param filters: made of ``config``
    :param signal_channels: where signals come from besides the state tables and the signal table
    :param notification_channels: where notifications go besides the state tables
    :param sinks: take the metrics of runs, while they continue and at their end
    :param definition: digest of the definition: after a failure, another one is a sign of a repair
    :param open_readers: opens readers of other processes for a snapshot
    :param register: records the run's definition, once it has its lease: another DAG has captured until now
    """

    name: str
    source: Source
    config: ConnectorConfig
    filters: Filters
    store: StateStore
    changelog: ChangeLog
    signal_channels: Sequence[SignalChannel] = ()
    notification_channels: Sequence[NotificationChannel] = ()
    sinks: Sequence[Sink] = ()
    register: Callable[[], None] | None = None
    definition: str = ""
    open_readers: Callable[[], RemoteReaders] | None = None
