"""Projection for the comparison of a table that is kept by a rule.

It has the rows that the rule makes of the source's rows, and selects those of the table's rows that the source has now.

The rows are made by :class:`~airflow_provider_cdc.targets.lake.rules.projection.Projection`, as the apply makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce as fold
from operator import or_

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.target_table_rules import PLAIN, MatchedRule, TableRules
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.placement.recorded_rule_check import changes_rows, same_rule
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import UNKNOWN
from airflow_provider_cdc.targets.lake.rules.projection import Projection, RowCondition
from airflow_provider_cdc.targets.lake.rules.projection_builder import build_projection
from airflow_provider_cdc.targets.lake.rules.row_routing import RouteBranch
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, spark_type
from airflow_provider_cdc.verify.batches_after_reference import NeverComparable, NotComparable
from airflow_provider_cdc.verify.verification_documents import why_not

UNKNOWN_RULE = "it has a rule, but it is unknown which one: there is no report of an apply, and no rules were given"
_OVER = {"soft_delete": "NOT coalesce(_is_deleted, false)", "history": "_is_current"}
"""Mode → which rows of its tables the source has now."""


@dataclass(frozen=True, slots=True)
class ProjectedTable:
    """A table of the source, as its rule keeps it.

    :param schema: the newest one
    """

    shape: Projection
    schema: TableSchema

    @property
    def by_rule(self) -> bool:
        """True if its rows or columns are others than those of the source."""
        return not self.shape.is_identity

    @property
    def comparable_types(self) -> dict[str, str]:
        """Column of the table → Spark type, of those that follow from the source's rows."""
        metadata_columns = self.shape.rule.metadata_columns
        types = event_reduction.final_types(self.schema, self.shape)
        return {name: type_ for name, type_ in types.items() if name not in metadata_columns}

    @property
    def event_columns(self) -> list[str]:
        """Columns of the table that describe events; the source's rows do not show their values."""
        return [*self.shape.rule.metadata_columns, *self.shape.map_flag_types()]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key of the table's rows."""
        return self.shape.list_key_columns(self.schema)

    @property
    def key_at_source(self) -> dict[str, tuple[str, str]]:
        """Key column of the table → its name and its Spark type at the source.

        The column that distinguishes shards is none of the source.
        """
        if not self.by_rule:
            return {}
        names = self.shape.map_column_names(self.schema)
        return {names[k]: (k, spark_type(self.schema.get_column(k).type)) for k in self.schema.key}

    def with_variants(self, variants: Mapping[str, str]) -> ProjectedTable:
        """Return the same where columns of the source continue in others of the table.

        These are the variants of :mod:`airflow_provider_cdc.targets.lake.schema.column_successors`.
        """
        return replace(self, shape=replace(self.shape, variants=variants)) if variants else self

    def project_rows(self, rows: DataFrame) -> DataFrame:
        """Return the rows that the table ought to have.

        :param rows: of the source, with :data:`~airflow_provider_cdc.targets.lake.rows.last_event_per_key.UNKNOWN` where values are not known
        :raises NotComparable: it is not known whether they pass the filter, or where a route brings them
        """
        if self.shape.filter is not None:
            refuse_unknown(rows, self.shape.filter)
        return self.shape.project_current_rows(rows, self.schema)

    def select_live_rows(self, rows: DataFrame) -> DataFrame:
        """Select the rows of the table that are compared: of this source table, and there now."""
        rows = rows.where(self.shape.build_source_condition()) if self.shape.shard_column else rows
        over = _OVER.get(self.shape.mode)
        return rows if over is None else rows.where(over)

    def count_skipped_rows(self, rows: DataFrame) -> int:
        """Count the rows of the table that are not compared, as the source does not have them any more."""
        if self.shape.mode not in _OVER:
            return 0
        mine = rows.where(self.shape.build_source_condition()) if self.shape.shard_column else rows
        return mine.where(f"NOT ({_OVER[self.shape.mode]})").count()


def refuse_unknown(rows: DataFrame, where: RowCondition) -> None:
    """Check that the values that a condition needs are known for all rows.

    :raises NotComparable: it is not known for which rows a condition is true
    """
    if UNKNOWN not in rows.columns:
        return
    needed = F.array(*[F.lit(name) for name in sorted(where.needs)]).cast("array<string>")
    if rows.where(F.arrays_overlap(UNKNOWN, needed)).head(1):
        raise NotComparable(
            f"the {where.rule_option} of its rule needs {', '.join(sorted(where.needs))}, but the reference lacks some of their values"
        )


def match_rule(rules: TableRules | None, schema: TableSchema) -> MatchedRule:
    """Return the rule of a table.

    :raises NeverComparable: its rows are none of the source
    """
    matched = MatchedRule(PLAIN, {}) if rules is None else rules.match_table(schema.id)
    if why := why_not(matched.rule):
        raise NeverComparable(why)
    return matched


def build_projected_table(
    spark: SparkSession,
    rule: MatchedRule,
    connector: str,
    topic: str,
    schema: TableSchema,
    recorded_rule: str,
    *,
    rules_known: bool,
    place: RouteBranch | None = None,
) -> ProjectedTable:
    """Apply a rule to the schema of a table.

    :param recorded_rule: the rule that the table records
    :param rules_known: whether the rules are known that the apply has
    :param place: of a rule with a route, the one whose rows the table has
    :raises NotComparable: the table was made by another rule, or the rule does not fit the source's table any more
    """
    if not rules_known and changes_rows(recorded_rule):
        raise NotComparable(UNKNOWN_RULE)
    try:
        projection = build_projection(spark, rule, connector, topic, schema, strict=False, place=place)
    except CdcError as e:
        raise NotComparable(e.message) from e
    if not (
        same_rule(recorded_rule, projection.format_recorded_rule(), schema)
        or (projection.is_identity and not changes_rows(recorded_rule))
    ):
        raise NotComparable(
            f"it was built by another rule ({recorded_rule or 'none'}) than the rule of the last apply ({projection.format_recorded_rule() or 'none'}): run the apply, which reports the remedy"
        )
    return ProjectedTable(projection, schema)


def written_key(key: tuple[str, ...], at_source: Mapping[str, tuple[str, str]]) -> Expression:
    """Build a key of the table as a struct, by names and types of the source.

    It is NULL if it cannot be one of the source.

    :param at_source: as :attr:`ProjectedTable.key_at_source`
    """
    if not at_source:
        return F.struct(*map(quote_name, key))
    there = {name: (F.col(quote_name(name)), *at) for name, at in at_source.items()}
    values = {name: column.try_cast(type_) for name, (column, _, type_) in there.items()}
    lost = [there[name][0].isNotNull() & value.isNull() for name, value in values.items()]
    whole = F.struct(*[value.alias(there[name][1]) for name, value in values.items()])
    return F.when(~fold(or_, lost), whole)
