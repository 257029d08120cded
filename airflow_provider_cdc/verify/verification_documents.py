"""The plan and the report of a verification: two documents in the scratch change log of its references."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import orjson

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.config.target_table_rules import TableRule
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.remedy_commands import name_cdc_command

_PLAN, _REPORT = "plan.json", "report.json"


def why_not(rule: TableRule) -> str:
    """Why a table that is kept by a rule can never be compared with the source; empty if it can."""
    nothing = "which the source does not contain"
    if rule.outbox is not None:
        return f"its rule is an outbox: the rows of its tables are events, {nothing}"
    if rule.mode == "log":
        return f"its rule has mode log: its rows are events, {nothing}"
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class ReferencePoint:
    """A reference: the source's rows of some tables at one position.

    :param name: of the connector in the scratch change log that has read them
    :param position: of the source's log
    :param at: the position for people
    :param first: the connector's first batch that ends after the position; it may not be there yet
    :param straddles: that batch may begin before the position
    :param topics: those for which this is the reference
    :param batches: how many batches it has: fewer would be rows that the source seems not to have
    """

    name: str
    position: dict[str, Any]
    at: str
    first: int
    straddles: bool
    topics: tuple[str, ...]
    batches: int


@dataclasses.dataclass(frozen=True, slots=True)
class VerificationPlan:
    """A plan of how tables are verified while capture and apply continue.

    :param connector: whose tables they are
    :param changelog: of this connector
    :param not_compared: topic → why it can never be compared
    :param wait_s: how long to wait for the apply to bring a table to the position of its reference, seconds
    :param named: whether a user has named the tables: then one that cannot be compared is no success
    """

    connector: str
    changelog: str
    references: tuple[ReferencePoint, ...]
    not_compared: dict[str, str] = dataclasses.field(default_factory=dict)
    wait_s: float = 600.0
    named: bool = False

    def write(self, scratch: Storage) -> None:
        """Put it where the job finds it."""
        scratch.replace(scratch.join_path(_PLAN), orjson.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, scratch: Storage) -> Self:
        """Read the plan.

        :raises ChangeLogDamaged: there is none
        """
        path = scratch.join_path(_PLAN)
        data = scratch.read(path)
        if data is None:
            raise ChangeLogDamaged(
                "The plan of the verification does not exist.",
                where=path,
                safe="Nothing was read or changed.",
                remedy=f"run `{name_cdc_command('verify')}`, which makes a plan automatically; or leave --plan out to verify the tables against the change log as it is",
            )
        document = orjson.loads(data)
        document["references"] = tuple(
            ReferencePoint(**{**reference, "topics": tuple(reference["topics"])})
            for reference in document["references"]
        )
        return cls(**document)


def write_report(scratch: Storage, report: dict[str, Any]) -> None:
    """Write the result where the process that started the job finds it.

    If that was killed, and the plan is deleted, nothing is written.
    """
    if scratch.read(scratch.join_path(_PLAN)) is not None:
        scratch.replace(scratch.join_path(_REPORT), orjson.dumps(report))


def read_report(scratch: Storage) -> dict[str, Any] | None:
    """Read the result; ``None`` if the job has not come so far."""
    data = scratch.read(scratch.join_path(_REPORT))
    return None if data is None else dict(orjson.loads(data))
