"""Compares the rule that a table was made by with the one that is in force: rows that are there follow the first one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_provider_cdc.changelog.reports.apply_report import TableState
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetIdentity
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.rules.row_routing import RouteBranch
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable


def same_rule(recorded_rule: str, now: str, schema: TableSchema) -> bool:
    """Return whether two rules mean the same for a table.

    Their settings for columns that it does not have do not matter.

    :param recorded_rule: as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.read_rule` has it
    :param now: as :meth:`airflow_provider_cdc.targets.lake.rules.projection.Projection.format_recorded_rule`
    """
    if recorded_rule == now:
        return True
    return _relevant(recorded_rule, schema) == _relevant(now, schema)


def changes_rows(recorded_rule: str) -> bool:
    """Return whether the rule that a table was made by makes other rows or columns than the source has."""
    return bool(_read(recorded_rule).keys() - {"partition_by", "cluster_by"})


def another_place(target: TargetIdentity, owner: Owner, place: RouteBranch) -> TargetError | None:
    """Build an error if the table has the rows of another place than this one; ``None`` if it does not."""
    recorded_place = _read(target.read_rule()).get("place")
    if recorded_place == place.to_identity():
        return None
    has = (
        "all of its rows or the rows of an earlier rule"
        if recorded_place is None
        else f"its rows of {_shown(recorded_place)}"
    )
    return TargetError(
        f"A rule routes rows of {owner.topic} to a table that has {has}, but should have the rows of {_shown(place.to_identity())}.",
        where=f"{target.location} ({owner})",
        safe="The table was not changed; the change log keeps the batches.",
        remedy="give the step of the route another location, or map two values to one, for example with lower(…); or move the table away: the apply then rebuilds "
        "it from the change log by the present rule",
    )


def another_rule(target: TargetIdentity, owner: Owner, shape: Projection) -> TargetError:
    """Build the error that the table was made by another rule."""
    before, now = _read(target.read_rule()), _read(shape.format_recorded_rule())
    differs = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    lines = [f"{name}: {_shown(before.get(name))} → {_shown(now.get(name))}" for name in differs]
    return TargetError(
        f"The table was built by another rule than the present one ({'; '.join(lines)}): old and new rows would not fit together.",
        where=f"{target.location} ({owner})",
        safe="The table was not changed; the change log keeps the batches.",
        remedy="restore the previous rule; or give the rule another location, or move the table away: the apply then rebuilds it from the change log by "
        "the present rule",
    )


def other_texts(table: TargetTable, entry: TableState, where: TargetIdentity) -> TargetError | None:
    """Build an error if the rows of a topic in a shared table have other texts than its next ones would get.

    ``None`` if they have the same. Named groups of a pattern are no part of the rule that a table records, and it has the rows of several topics.

    :param entry: entry of the table in the last report
    """
    before, now = entry.get("texts"), table.texts
    if before is None or now is None or before == now or entry.get("location") != table.location:
        return None
    lines = [
        f"{name}: {_shown(text)} → {_shown(now.get(name))}" for name, text in before.items() if now.get(name) != text
    ]
    return TargetError(
        f"The rows of {table.topic} in its shared table have other shard texts than the rule now sets ({'; '.join(lines)}): the apply would no longer find these rows.",
        where=where.location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="change the pattern of the rule so that it gives the same texts as before; or give the rule another location, or move the table away: the apply then "
        "rebuilds it from the change log by the present rule",
    )


def _read(text: str) -> dict[str, Any]:
    return dict(json.loads(text)) if text else {}


def _relevant(text: str, schema: TableSchema) -> dict[str, Any]:
    rule, there = _read(text), {name.lower() for name in schema.column_names}
    columns: Mapping[str, Any] = rule.get("columns", {})
    relevant: dict[str, Any] = {}
    for option, value in columns.items():
        if option in ("rename", "cast"):
            relevant[option] = {name.lower(): new for name, new in value.items() if name.lower() in there}
        elif option in ("keep", "drop"):
            relevant[option] = sorted(name.lower() for name in value if name.lower() in there)
        else:
            relevant[option] = value
    return {**rule, "columns": {option: value for option, value in relevant.items() if value}}


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
