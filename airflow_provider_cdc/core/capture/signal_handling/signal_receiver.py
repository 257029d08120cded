"""Brings signals from the channels into the state tables, where runs and people find them."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.signals.signal_intake import SignalIntake
from airflow_provider_cdc.core.spi.store_interfaces import SignalChannel, StateStore


def receive_signals(
    connector: str, channels: Sequence[SignalChannel], config: ConnectorConfig, store: StateStore
) -> None:
    """Record the signals that have come. A signal is acknowledged when it is durable, or beyond a limit, so that none is lost."""
    for channel in channels:
        if not (signals := channel.poll()):
            continue
        intake = SignalIntake(connector, signals[0].channel, config, store)
        intake.add(signals)
        intake.record()
        channel.acknowledge(signals)


__all__ = ["receive_signals"]
