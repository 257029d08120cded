"""The ways to read collections: as they were at one moment, or as they are."""

from __future__ import annotations

from typing import Any

from bson import Timestamp

from airflow_provider_cdc.sources.mongodb.position import ClusterTime


def build_read_concern(at: ClusterTime, *, as_it_is: bool = False) -> dict[str, Any]:
    """Return the read concern of a read.

    :param as_it_is: read what there is, at that moment or later, also on a member that is behind it
    """
    stamp = Timestamp(at.seconds, at.ordinal)
    if as_it_is:
        return {"level": "majority", "afterClusterTime": stamp}
    return {"level": "snapshot", "atClusterTime": stamp}


def read_too_late(table: object) -> str:
    """Return the message about a collection of which the server has no longer what it was."""
    return (
        f"The server no longer has {table} as it was at the snapshot's moment: it is read on as it is now, and the stream brings what has changed since. "
        "To have it of one moment, raise minSnapshotHistoryWindowInSeconds."
    )


def read_as_it_is(table: object) -> str:
    """Return the message about a collection that cannot be read as it was."""
    return (
        f"The server does not show {table} as it was at one moment, as the collection is capped, and its version is before 8.0: it is read as it is "
        "now, and the stream brings what has changed since."
    )
