"""Permissions of each channel to send signals (``signal.allowed.types``, not in Debezium).

People who can insert a row into the signal table, append to a file or write to a topic are seldom those who run capture. Unless
configured otherwise, only trusted channels may move the position, replace the known schema of a table (rows are decoded and columns are masked by
it), send SQL (it runs with the rights of the capture account), or empty tables in the targets. Every channel may send all other signals.

    >>> is_allowed({}, "source", "log", (), position="set-binlog-position")
    True
    >>> is_allowed({}, "source", "set-binlog-position", (), position="set-binlog-position")
    False
    >>> is_allowed({"source": ("execute-snapshot", SQL)}, "source", "execute-snapshot", (SQL,), position=None)
    True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.remedy_commands import format_cdc_command, name_cdc_command
from airflow_provider_cdc.core.signals.signal_request_parser import (
    REPLACE,
    SCHEMA_CHANGES,
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
_MEANINGS: Final = {SQL: " (custom SQL)", REPLACE: " (tables are emptied in the targets)"}


def is_allowed(
    types: Mapping[str, Sequence[str]], channel: str, type_: str, contents: Sequence[str], *, position: str | None
) -> bool:
    """Check whether a channel may send a signal.

    :param types: of ``signal.allowed.types``: channel → types, for channels that are named there
    :param contents: what the signal has that needs a permission besides its type: :data:`SQL`, :data:`REPLACE`
    :param position: type of the signal that moves the position, where the source has one
    """
    if channel in types:
        allowed = types[channel]
        return EVERYTHING in allowed or {type_, *contents} <= set(allowed)
    return channel in TRUSTED or (type_ not in (position, SCHEMA_CHANGES) and not contents)


def check_permission(config: ConnectorConfig, signal: Signal, request: Request, position: str | None) -> None:
    """Check that the signal's channel may send it.

    :raises SignalRejected: the signal's channel may not send it
    """
    type_ = request.type if isinstance(request, OtherRequest) else signal.type.strip()
    contents = _list_contents(request)
    types, channel = config.signal_allowed_types, signal.channel
    if is_allowed(types, channel, type_, contents, position=position):
        return
    denied = type_
    if is_allowed(types, channel, type_, (), position=position):
        denied = next(name for name in contents if not is_allowed(types, channel, type_, (name,), position=position))
    raise SignalRejected(
        f"the channel {channel} may not send {denied}{_MEANINGS.get(denied, '')}. Inspect the signal with "
        f"`{format_cdc_command('signals', config.connector_name, number=signal.number, output='json')}` and send it through the channel airflow "
        f"(`{name_cdc_command('signal')}`), which may send it, or allow it with signal.allowed.types={channel}:{','.join([type_, *contents])},…"
    )


def _list_contents(request: Request) -> list[str]:
    if not isinstance(request, ExecuteSnapshotRequest):
        return []
    return [name for name, used in ((SQL, bool(request.conditions)), (REPLACE, request.replace)) if used]
