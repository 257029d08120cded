"""Permissions of each channel to send signals (``signal.allowed.types``, ours).

People who can insert a row into the signal table, append to a file or write to a topic are seldom those who run capture. Unless
configured otherwise, only Airflow's channel may move the position or send SQL, which runs with the rights of the
capture account; every channel may ask for everything else.

    >>> is_allowed({}, "source", "log", sql=False, position="set-binlog-position")
    True
    >>> is_allowed({}, "source", "set-binlog-position", sql=False, position="set-binlog-position")
    False
    >>> is_allowed({"source": ("execute-snapshot", SQL)}, "source", "execute-snapshot", sql=True, position=None)
    True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.signals.signal_request_parser import (
    SQL,
    ExecuteSnapshotRequest,
    OtherRequest,
    Request,
    SignalRejected,
)

if TYPE_CHECKING:
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig

TRUSTED: Final = ("airflow", "repair")
"""Channels whose senders have the rights in Airflow that it asks for."""
EVERYTHING: Final = "*"


def is_allowed(
    types: Mapping[str, Sequence[str]], channel: str, type_: str, *, sql: bool, position: str | None
) -> bool:
    """Check whether a channel may send a signal.

    :param types: of ``signal.allowed.types``: channel → types, for channels that are named there
    :param sql: whether the signal brings a condition or a SELECT
    :param position: type of the signal that moves the position, where the source has one
    """
    if channel in types:
        mine = types[channel]
        return EVERYTHING in mine or (type_ in mine and (not sql or SQL in mine))
    return channel in TRUSTED or (type_ != position and not sql)


def check_permission(config: ConnectorConfig, signal: Signal, request: Request, position: str | None) -> None:
    """Check that the signal's channel may send it.

    :raises Refused: the signal's channel may not send it
    """
    type_ = request.type if isinstance(request, OtherRequest) else signal.type.strip()
    sql = isinstance(request, ExecuteSnapshotRequest) and bool(request.conditions)
    types, channel = config.signal_allowed_types, signal.channel
    if is_allowed(types, channel, type_, sql=sql, position=position):
        return
    denied = type_ if is_allowed(types, channel, type_, sql=False, position=position) is False else SQL
    raise SignalRejected(
        f"the channel {channel} may not send {denied}{' (custom SQL)' if denied == SQL else ''}. Inspect the signal with "
        f"`{format_cdc_command('signals', config.connector_name, number=signal.number, output='json')}` and send it through the channel airflow (`airflow cdc signal`), which may send it, or allow it with signal.allowed.types={_example(channel, type_, sql)}"
    )


def _example(channel: str, type_: str, sql: bool) -> str:
    return f"{channel}:{type_}{f',{SQL}' if sql else ''},…"
