"""The tables of a topic with a route that are compared: those that the apply has made, and those to which rows of the source go."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.lake.placement.affected_route_tables import MOST
from airflow_provider_cdc.targets.lake.placement.table_placement import TablePlacement
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.rules.projection_builder import build_projection, build_routing
from airflow_provider_cdc.targets.lake.rules.row_routing import ELSE, RouteBranch
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.verify.expected_rows import ExpectedTableRows
from airflow_provider_cdc.targets.lake.verify.projected_table import refuse_unknown
from airflow_provider_cdc.verify.batches_after_reference import NotComparable

_STEP, _VALUE = f"{OURS}step", f"{OURS}value"


def tables_of(
    spark: SparkSession,
    rules: TableRules,
    connector: str,
    location: str,
    topic: str,
    expected: ExpectedTableRows,
    known_tables: Sequence[TargetTable],
) -> list[TargetTable]:
    """Return the tables of a topic; those that should be there and are not are among them.

    :param location: where tables are that no rule brings elsewhere
    :param expected: the rows of the source at some batch
    :param known_tables: those that the apply has made by then
    :raises NotComparable: it is not known where rows go
    """
    matched, placement = rules.match_table(expected.schema.id), TablePlacement(connector, location, rules)
    try:
        where = build_projection(spark, matched, connector, topic, expected.schema, strict=False, place=ELSE).filter
        assert where is not None
        refuse_unknown(expected.rows, where)
        route, rows = build_routing(spark, matched, expected.schema), expected.rows
        if matched.rule.filter is not None:
            rows = rows.where(F.coalesce(F.expr(matched.rule.filter), F.lit(col=False)))
        branches = (
            rows.select(route.build_step_number().alias(_STEP), route.build_branch_value().alias(_VALUE))
            .distinct()
            .limit(MOST + 1)
            .collect()
        )
        there = {table.place for table in known_tables}
        missing = {RouteBranch(row[_STEP], row[_VALUE]) for row in branches} - there
        if matched.rule.unrouted_rows_action != "default":
            missing.discard(ELSE)
        if len(missing) > MOST:
            raise NotComparable(f"its route would create more than {MOST:,} tables of it")
        locations = [
            (place, placement.resolve_branch_location(matched, topic, expected.schema.id, place)) for place in missing
        ]
    except CdcError as e:
        raise NotComparable(e.message) from e
    new = [TargetTable.from_route(topic, at, place) for place, at in locations]
    return sorted([*known_tables, *new], key=lambda table: table.name)
