"""The range of the change stream: its end, its beginning, and whether it can be read from a position on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pymongo.errors as driver
from bson import Timestamp

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Client, deployment_of, now_of
from airflow_provider_cdc.sources.mongodb.errors import HISTORY_LOST, NOT_SHOWN, code_of
from airflow_provider_cdc.sources.mongodb.log.stream_pipeline import (
    build_start_option,
    change_stream,
    resolve_aggregate_scope,
)
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from airflow_provider_cdc.sources.mongodb.product_checks import UNKNOWN, no_mongodb

_OPLOG: Final = "oplog.rs"
_INITIATED: Final = "initiating set"
FUTURE_S: Final = 60
"""Largest distance of a position ahead of the cluster's time: routers report that time late."""


@dataclass(frozen=True, slots=True)
class OplogWindow:
    """The oplog of the member that is asked.

    :param complete: it has everything since the replica set was made
    """

    first: ClusterTime
    last: ClusterTime
    complete: bool

    @property
    def window_hours(self) -> float:
        """For how long it goes back."""
        return (self.last.seconds - self.first.seconds) / 3600


def oplog_window(client: Client) -> OplogWindow | None:
    """Read the window of the oplog; ``None`` where the account, or a router, does not show it."""
    try:
        oplog = client.local[_OPLOG]
        ends = [oplog.find_one({}, {"ts": 1, "o.msg": 1}, sort=[("$natural", order)]) for order in (1, -1)]
    except driver.OperationFailure as e:
        if code_of(e) in NOT_SHOWN:
            return None
        raise
    if None in ends:
        return None
    first, last = ends
    assert first is not None
    assert last is not None
    return OplogWindow(_time(first["ts"]), _time(last["ts"]), (first.get("o") or {}).get("msg") == _INITIATED)


def window_around(client: Client, position: MongoPosition) -> LogWindow:
    """Compute how far a position is from both ends of the oplog, which removes its beginning as its end grows.

    The result is as if it was written evenly.

    Nothing is known where the account, or a router, does not show the oplog; no bytes, where it does not show its size.
    """
    window = oplog_window(client)
    if window is None:
        return LogWindow()
    behind, held = max(window.last.seconds - position.time.seconds, 0), window.last.seconds - window.first.seconds
    if held <= 0:  # it has just begun
        return LogWindow(None if behind else 0)
    size, most = _sizes(client)
    room_s = max(most - size, 0) / size * held if size else 0.0  # until it is full
    left_s = max(position.time.seconds - window.first.seconds, 0) + room_s
    return LogWindow(round(size * min(behind / held, 1.0)) if size else None, now_of(client).seconds + left_s)


def find_log_retention(client: Client) -> LogRetention | None:
    """Return how far the oplog goes back now; ``None`` where the account, or a router, does not show it."""
    window = oplog_window(client)
    if window is None:
        return None
    if window.complete:
        return LogRetention(None, "the oplog still has everything since the replica set was initiated")
    _, most = _sizes(client)
    size = f"the oplog of {most / 1e6:,.0f} MB" if most else "the oplog"
    return LogRetention(
        window.window_hours * 3600, f"{size} goes back as far now; its size and minRetentionHours decide"
    )


def _sizes(client: Client) -> tuple[int, int]:
    """Bytes of the oplog now, and at most; 0 where that is not shown."""
    try:
        statistics = client.local.command("collStats", _OPLOG)
    except driver.OperationFailure as e:
        if code_of(e) in NOT_SHOWN:
            return 0, 0
        raise
    return int(statistics.get("size", 0)), int(statistics.get("maxSize", 0))


def find_oldest_position(client: Client, config: MongoDbConfig) -> MongoPosition:
    """Find the first position that the stream can be read from.

    Where the oplog cannot be seen, the change stream is asked, halving the time until the second is found.
    """
    window = oplog_window(client)
    if window is not None:
        return MongoPosition(window.first)
    now = now_of(client)
    low, high = 0, now.seconds
    while high - low > 1:
        middle = (low + high) // 2
        if can_start_stream(client, config, {"startAtOperationTime": Timestamp(middle, 1)}):
            high = middle
        else:
            low = middle
    return MongoPosition(ClusterTime(high, 1))


def check_position_readable(client: Client, config: MongoDbConfig, position: MongoPosition) -> None:
    """Make sure that the stream can be read from a position on.

    :raises PositionLost: it cannot
    """
    now = now_of(client)
    if position.time.seconds > now.seconds + FUTURE_S:
        raise PositionLost(
            f"The position is at cluster time {position.time}, but the deployment is at {now}: the "
            "deployment was restored to an earlier time, or is a different one.",
            where=str(position),
            safe="Everything up to the position is captured; the offset is untouched.",
            remedy="correct the connection if it points to another deployment; otherwise set "
            "snapshot.mode=when_needed to snapshot all collections again",
        )
    if not can_start_stream(client, config, build_start_option(position)):
        raise PositionLost(
            f"The oplog no longer holds the position{_how_much(client, position, now)}.",
            where=str(position),
            safe="Everything up to the position is captured; the offset is untouched.",
            remedy="set position.lost.mode or snapshot.mode=when_needed to snapshot all collections again, and make the "
            "oplog larger: db.adminCommand({replSetResizeOplog: 1, minRetentionHours: 48})",
        )


def _how_much(client: Client, position: MongoPosition, now: ClusterTime) -> str:
    window = oplog_window(client)
    if window is None:
        return ""
    behind = (window.first.seconds - position.time.seconds) / 3600
    return f": it begins at {window.first}, {behind:,.1f} hours later, and holds {window.window_hours:,.1f} hours"


def can_start_stream(client: Client, config: MongoDbConfig, start: dict[str, Any]) -> bool:
    """Check whether a change stream without filters can begin there."""
    database, scope = resolve_aggregate_scope(config)
    stage = change_stream(config, deployment_of(client)) | start
    stage.pop("fullDocument", None)
    stage.pop("fullDocumentBeforeChange", None)
    pipeline = [{"$changeStream": stage}, {"$project": {"_id": 1}}]
    command = {"aggregate": scope, "pipeline": pipeline, "cursor": {"batchSize": 1}}
    with client.start_session(causal_consistency=False) as session:
        try:
            reply = client[database].command(command, session=session, read_preference=client.read_preference)
        except driver.OperationFailure as e:
            if code_of(e) == HISTORY_LOST:
                return False
            raise
        cursor = reply["cursor"]
        if number := cursor["id"]:  # another member may be asked, and not know it: there it ends with the session
            client[database].command("killCursors", cursor["ns"].partition(".")[2], cursors=[number], session=session)
    if "postBatchResumeToken" not in cursor:
        raise no_mongodb(UNKNOWN, config.display_address)
    return True


def _time(stamp: Any) -> ClusterTime:
    return ClusterTime(stamp.time, stamp.inc)
