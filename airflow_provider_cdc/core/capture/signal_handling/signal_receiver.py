"""Brings signals from the channels into the state tables, where runs and people find them."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_cdc.core.spi.store_interfaces import SignalChannel, StateStore


def receive_signals(connector: str, channels: Sequence[SignalChannel], store: StateStore) -> None:
    """Record the signals that have come. A signal is acknowledged when it is durable, so that none is lost."""
    for channel in channels:
        signals = channel.poll()
        for sent in signals:
            store.send(connector, sent)
        if signals:
            channel.acknowledge(signals)


__all__ = ["receive_signals"]
