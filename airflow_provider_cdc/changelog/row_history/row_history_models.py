"""The history of a row, as ``airflow cdc row --json`` prints it and the page's API returns it. Values have JSON types: decimals and times are texts, bytes are base64."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Row = dict[str, Any]
Operation = Literal["read", "create", "update", "delete", "key change", "truncate", "schema change"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class KeyColumn(_Model):
    """A column of a table's key.

    :param type: its type in the change log
    :param form: the form of its values in a request
    """

    name: str
    type: str
    form: str


class TargetOutcome(_Model):
    """The outcome of a change at one target.

    :param state: ``applied``; ``waits``: the target does not have the batch yet; ``unknown``: its last report does not show it
    :param at: end of the run after which the target had the change, ISO 8601; ``None`` if it is no longer known
    :param at_latest: an earlier run may have applied the change: earlier runs are not recorded
    """

    target: str
    location: str
    state: Literal["applied", "waits", "unknown"]
    at: str | None = None
    at_latest: bool = False


class RowChange(_Model):
    """A change of the row, or of its whole table (``truncate``, ``schema change``).

    :param snapshot: value of ``source.snapshot`` if a snapshot made the event. A ``truncate`` with this value is not a ``TRUNCATE`` by a user: the snapshot
        empties the table before it reads the rows again
    :param table: name of the table at that time
    :param topic: topic of its events
    :param key: key of the row after the change; for a delete, before it
    :param previous_key: for a key change: the key before it
    :param next_key: for a key change away from the requested key: the new key
    :param columns: names of the row's columns at that time
    :param unavailable: columns whose value in ``after`` the log does not contain, because an update did not change them
    :param unavailable_before: the same for ``before``
    :param changed: columns that differ between ``before`` and ``after``
    :param position: position of the change in the source's log, in the source's own fields
    :param transaction: id of the transaction and the order of the event in it, if the connector captures them
    :param committed_at: time of the change in the database, ISO 8601 in UTC, like the other times
    :param captured_at: time at which the event was captured
    :param batch_at: time at which its batch was committed to the change log
    :param statement: DDL statement of a schema change
    """

    seq: int
    batch: int
    operation: Operation
    table: str
    topic: str | None = None
    key: Row | None = None
    previous_key: Row | None = None
    next_key: Row | None = None
    schema_version: int | None = None
    columns: list[str] = Field(default_factory=list)
    before: Row | None = None
    after: Row | None = None
    unavailable: list[str] = Field(default_factory=list)
    unavailable_before: list[str] = Field(default_factory=list)
    changed: list[str] = Field(default_factory=list)
    snapshot: str | None = None
    position: Row = Field(default_factory=dict)
    transaction: Row | None = None
    committed_at: str
    captured_at: str
    batch_at: str | None = None
    statement: str | None = None
    applied: list[TargetOutcome] = Field(default_factory=list)


class CurrentRow(_Model):
    """The current row according to the change log.

    :param state: ``unknown`` if the retained change log does not show whether the row exists
    :param row: ``None`` if the row does not exist
    :param unavailable: columns whose value is not known
    """

    state: Literal["row", "no row", "unknown"]
    row: Row | None = None
    unavailable: list[str] = Field(default_factory=list)


class CurrentTargetRow(_Model):
    """The row as a target holds it now.

    :param location: location of the target, as in its report
    :param table: location of the table
    :param mode: mode of the table's rule
    :param batch: last batch of the table, from the report
    :param key: key used to look up the row: its key in that batch, in columns of the source
    :param state: ``deleted``: the table keeps the row and marks it as deleted; ``not looked at``: the row was not read, ``why`` contains the reason
    :param row: the row with the columns of the table; in mode ``history`` the valid version, or the last one; in mode ``log`` the last event
    :param versions: number of rows with this key, in the modes ``history`` and ``log``
    :param why: the reason, or a note about the row
    """

    target: str
    location: str
    table: str | None = None
    mode: str = "current"
    batch: int | None = None
    key: Row | None = None
    state: Literal["row", "no row", "deleted", "not looked at"]
    row: Row | None = None
    versions: int | None = None
    why: str = ""


class CurrentSourceRow(_Model):
    """The row at the source now, beside the newest change.

    :param equal: whether both are equal; ``None`` if the change log does not contain all values for the comparison
    :param different: columns that differ
    :param position: end of the source's log at that time: changes after the newest captured one may be captured later
    """

    row: Row | None
    equal: bool | None
    different: list[str] = Field(default_factory=list)
    position: str = ""


class RowHistory(_Model):
    """The history of a row.

    :param key: the requested key
    :param changes: newest first
    :param as_of: the requested time, at which the history ends
    :param row: the row after the newest change
    :param first_batch: the first retained batch
    :param last_batch: the newest batch that was searched
    :param begins_at: start of the retained change log, if earlier batches were removed: earlier changes are not known
    :param left_out: ranges of batches, first and last, that were not searched before the timeout
    :param notes: notes for the reader
    """

    connector: str
    table: str
    key: Row
    as_of: str | None = None
    changes: list[RowChange] = Field(default_factory=list)
    row: CurrentRow
    first_batch: int = 0
    last_batch: int = 0
    begins_at: str | None = None
    left_out: list[tuple[int, int]] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    targets: list[CurrentTargetRow] = Field(default_factory=list)
    source: CurrentSourceRow | None = None
