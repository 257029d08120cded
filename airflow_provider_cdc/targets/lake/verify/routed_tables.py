"""The tables of a topic with a route that are compared: those that the apply has made, and those to which rows of the source go."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.lake.placement.routed_tables import MOST
from airflow_provider_cdc.targets.lake.placement.table_placement import Placement
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.rules.projection_builder import routing, shape
from airflow_provider_cdc.targets.lake.rules.row_routing import ELSE, Place
from airflow_provider_cdc.targets.lake.rules.target_table import Placed
from airflow_provider_cdc.targets.lake.verify.compare_projection import refuse_unknown
from airflow_provider_cdc.targets.lake.verify.expected_rows import Expected
from airflow_provider_cdc.verify.captured_since import NotComparable

_STEP, _VALUE = f"{OURS}step", f"{OURS}value"


def tables_of(
    spark: SparkSession,
    rules: TableRules,
    connector: str,
    location: str,
    topic: str,
    wanted: Expected,
    known: Sequence[Placed],
) -> list[Placed]:
    """The tables of a topic, those that should be there and are not among them.

    :param location: where tables are that no rule brings elsewhere
    :param wanted: the rows of the source at some batch
    :param known: those that the apply has made by then
    :raises NotComparable: nobody can say where rows go
    """
    matched, placement = rules.match(wanted.schema.id), Placement(connector, location, rules)
    try:
        where = shape(spark, matched, connector, topic, wanted.schema, strict=False, place=ELSE).filter
        assert where is not None
        refuse_unknown(wanted.rows, where)
        route, rows = routing(spark, matched, wanted.schema), wanted.rows
        if matched.rule.filter is not None:
            rows = rows.where(F.coalesce(F.expr(matched.rule.filter), F.lit(col=False)))
        found = rows.select(route.step().alias(_STEP), route.value().alias(_VALUE)).distinct().limit(MOST + 1).collect()
        there = {table.place for table in known}
        missing = {Place(row[_STEP], row[_VALUE]) for row in found} - there
        if matched.rule.left != "default":
            missing.discard(ELSE)
        if len(missing) > MOST:
            raise NotComparable(f"its route would make more than {MOST:,} tables of it")
        made = [(place, placement.place(matched, topic, wanted.schema.id, place)) for place in missing]
    except CdcError as e:
        raise NotComparable(e.what) from e
    new = [Placed.routed(topic, at, place) for place, at in made]
    return sorted([*known, *new], key=lambda table: table.name)
