"""The ways to read collections: as they were at one moment, or as they are."""

from __future__ import annotations

from typing import Any

from bson import Timestamp

from airflow_provider_cdc.sources.mongodb.position import ClusterTime


def build_read_concern(at: ClusterTime, *, as_it_is: bool = False) -> dict[str, Any]:
    """Return the read concern of a read.

    :param as_it_is: read the present documents, at that moment or later, also on a member that is behind it
    """
    stamp = Timestamp(at.seconds, at.ordinal)
    if as_it_is:
        return {"level": "majority", "afterClusterTime": stamp}
    return {"level": "snapshot", "atClusterTime": stamp}


def read_too_late(table: object) -> str:
    """Return the message about a collection of which the server no longer has the earlier state."""
    return (
        f"The server no longer has {table} at the time of the snapshot: the rest of the collection is read in its "
        "current state, and the stream captures the changes since the snapshot. For a snapshot at one point in "
        "time, raise minSnapshotHistoryWindowInSeconds."
    )


def read_as_it_is(table: object) -> str:
    """Return the message about a collection that cannot be read as it was."""
    return (
        f"The server cannot read {table} at one point in time, because the collection is capped and the server is "
        "older than 8.0: the collection is read in its current state, and the stream captures the changes since "
        "the snapshot."
    )
