"""The story of a row, as ``airflow cdc row --json`` prints it and the page's API gives it. Values are as JSON has them: decimals and moments as texts, bytes as base64."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Row = dict[str, Any]
Operation = Literal["read", "create", "update", "delete", "key change", "truncate", "schema change"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class KeyColumn(_Model):
    """A column of a table's key.

    :param type: in the change log
    :param form: how a value of it is given
    """

    name: str
    type: str
    form: str


class TargetOutcome(_Model):
    """The outcome of a change at one target.

    :param state: ``applied``; ``waits``: it has not got the batch yet; ``unknown``: its last report does not say
    :param at: when the run ended after which the target had it, ISO 8601; ``None`` if that is not known any more
    :param at_latest: the run may have been an earlier one: runs before it are not remembered
    """

    target: str
    location: str
    state: Literal["applied", "waits", "unknown"]
    at: str | None = None
    at_latest: bool = False


class RowChange(_Model):
    """A change of the row, or of its whole table (``truncate``, ``schema change``).

    :param snapshot: value of ``source.snapshot`` of what a snapshot has made; a ``truncate`` that has one is no ``TRUNCATE`` of a user: the snapshot empties
        the table before it reads it again
    :param table: what the table was called
    :param topic: of its events
    :param key: of the row after the change; of a delete, before it
    :param previous_key: of a key change: what the row was called before
    :param next_key: of a key change that took the row from the key that was asked for: what it is called since
    :param columns: names of the row's columns at that time
    :param unavailable: columns whose value in ``after`` the log does not have: an update has left them as they were
    :param unavailable_before: likewise, in ``before``
    :param changed: columns that differ between ``before`` and ``after``
    :param position: the source's own fields: where in its log the change is
    :param transaction: its id and the place in it, where the connector captures them
    :param committed_at: when the change was made in the database, ISO 8601 in UTC, as the other moments
    :param captured_at: when the event was made of it
    :param batch_at: when its batch was committed to the change log
    :param statement: of a schema change
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
    captured_at: str | None = None
    batch_at: str | None = None
    statement: str | None = None
    applied: list[TargetOutcome] = Field(default_factory=list)


class CurrentRow(_Model):
    """A row as the change log, a target or the source has it.

    :param state: ``unknown`` if the change log that is kept does not say it
    :param row: ``None`` if there is none
    :param unavailable: columns whose value is not known
    """

    state: Literal["row", "no row", "unknown"]
    row: Row | None = None
    unavailable: list[str] = Field(default_factory=list)


class CurrentTargetRow(_Model):
    """The row as a target holds it now.

    :param location: of the target, as its report has it
    :param table: where the table is
    :param mode: of the rule by which the table is kept
    :param batch: the last batch that its table has, by its report
    :param key: by which the row was looked for: the one that it had in that batch, with the columns of the source
    :param state: ``deleted``: the table keeps the row, and says that the source has deleted it; ``not looked at``: ``why`` says the reason
    :param row: with the columns of the table; in mode ``history`` the version that is valid, or the last one; in mode ``log`` the last event
    :param versions: rows that the table has of the key, in the modes ``history`` and ``log``
    :param why: the reason, or what a reader has to know
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

    :param equal: whether they are the same; ``None`` if the change log does not tell what it should be
    :param different: columns that are not
    :param position: where the source's log ended then: what came after the newest change may be captured later
    """

    row: Row | None
    equal: bool | None
    different: list[str] = Field(default_factory=list)
    position: str = ""


class RowHistory(_Model):
    """The story of a row.

    :param key: that was asked for
    :param changes: newest first
    :param as_of: the time that was asked for; the story ends there
    :param row: as it is after the newest of the changes
    :param first_batch: the first batch that is kept
    :param last_batch: the newest batch that was looked at
    :param begins_at: when the change log that is kept begins, if it is not with the first batch: what was before is not known
    :param left_out: batches, from and to, that there was no time for
    :param notes: what a reader has to know
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
