"""Channels that bring signals or send notifications, besides the source's own table and the state tables.

One file per channel, one line each in the registries below. Custom channels are entry points of the groups
:data:`SIGNAL_GROUP` and :data:`NOTIFICATION_GROUP`.

    >>> channels = open_channels(config, "shop")
    >>> for channel in channels:
    ...     signals = channel.poll()
    ...     for signal in signals:
    ...         store.send("shop", signal)
    ...     channel.acknowledge(signals)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.channels.guarded_channel import GuardedChannel
from airflow_provider_cdc.core.entry_points import list_extensions
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.spi.store_interfaces import SignalChannel

if TYPE_CHECKING:
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.model.notifications import NotificationChannel

SIGNAL_GROUP: Final = "airflow_provider_cdc.signal_channels"
"""Entry points: name → a callable that takes configuration and connector, and returns a :class:`SignalChannel`."""
NOTIFICATION_GROUP: Final = "airflow_provider_cdc.notification_channels"
"""Entry points: name → a callable without arguments that returns a ``NotificationChannel``."""

_SIGNALS: Mapping[str, str | None] = {
    "source": None,  # rows that the capture sees in the log
    "airflow": None,  # these are in the state tables from the beginning
    "file": "airflow_provider_cdc.channels.file_signals:FileChannel",
    "kafka": "airflow_provider_cdc.channels.kafka_signals:KafkaChannel",
}
_NOTIFICATIONS: Mapping[str, str | None] = {
    "log": "airflow_provider_cdc.channels.log_notifications:LogChannel",
    "sink": None,  # manifests have the notifications; the JSON form makes records of them
}
_NO_JMX = "JMX beans need Java, which is not used here; `airflow cdc` and the Airflow UI replace them"


def open_channels(config: ConnectorConfig, connector: str) -> list[SignalChannel]:
    """Open the channels of ``signal.enabled.channels`` that must be polled.

    They never raise: errors are logged, and the channel is polled again after a while.

    :raises ConfigError: there is no such channel, or it cannot be used as it is configured
    """
    opened: list[SignalChannel] = []
    try:
        for name in config.signal_enabled_channels:
            make = _maker("signal.enabled.channels", name, _SIGNALS, SIGNAL_GROUP)
            if make is not None:
                opened.append(GuardedChannel(name, make(config, connector)))
    except BaseException:
        for channel in opened:
            channel.close()
        raise
    return opened


def open_notifications(config: ConnectorConfig) -> list[NotificationChannel]:
    """Open the channels of ``notification.enabled.channels`` that notifications are sent to.

    :raises ConfigError: there is no such channel, or it cannot be made
    """
    property_ = "notification.enabled.channels"
    makers = [
        _maker(property_, name, _NOTIFICATIONS, NOTIFICATION_GROUP) for name in config.notification_enabled_channels
    ]
    return [make() for make in makers if make is not None]


def _maker(property_: str, name: str, own: Mapping[str, str | None], group: str) -> Callable[..., Any] | None:
    """Return the callable that makes a channel; ``None`` if a channel needs none."""
    if name in own:
        path = own[name]
        if path is None:
            return None
        module, _, attribute = path.partition(":")
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    added = {key.lower(): point for key, point in list_extensions(group).items()}
    if name not in added:
        why = _NO_JMX if name == "jmx" else "no channel has this name"
        raise ConfigError(
            f"{property_}: {name!r} cannot be used: {why}. Valid values are: {', '.join(sorted({*own, *added}))}."
        )
    try:
        factory: Any = added[name].load()
    except Exception as e:
        raise ConfigError(
            f"{property_}: the channel {name!r} cannot be loaded from {added[name].value}: {type(e).__name__}: {e}",
            remedy=f"fix or remove the package with the entry point of group {group}",
        ) from e
    return _checked(property_, name, factory)


def _checked(property_: str, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """Name the channel in the errors that a custom channel raises when it is made."""

    def create(*arguments: Any) -> Any:
        try:
            return make(*arguments)
        except ConfigError:
            raise
        except Exception as e:
            raise ConfigError(f"{property_}: the channel {name!r} cannot be created: {type(e).__name__}: {e}") from e

    return create


__all__ = ["NOTIFICATION_GROUP", "SIGNAL_GROUP", "SignalChannel", "open_channels", "open_notifications"]
