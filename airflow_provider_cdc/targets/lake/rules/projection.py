"""Projection of one source table by a rule: the columns of its target table, and their content.

A shape is made, and checked against the table's schema, by :mod:`airflow_provider_cdc.targets.lake.rules.projection_builder`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, Protocol

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.name_suggestions import names_in
from airflow_provider_cdc.core.config.target_table_rules import FLAGS, PLAIN, TableRule
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.formats.table_values import NO_COMMENTS, TableComments, TableLayout
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import FROM, OMITTED, OP, OURS, SEQ, UNKNOWN
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, spark_type
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import VARIANT, as_variant

META = f"{OURS}meta_"
"""Prefix of columns that describe events, before they get the names of the table's columns."""
COMMITTED = f"{META}commit_ts"
"""When the source has committed the event."""
PASSES = f"{OURS}passes"
"""Whether the filter of the rule is true for the event's row image."""
_TYPES = {
    "op": "string", "seq": "bigint", "commit_ts": "timestamp", "captured_ts": "timestamp", "transaction_id": "string", "source": "string",
    "snapshot": "string", "unavailable": "array<string>", "connector": "string", "topic": "string", "database": "string", "table": "string",
}  # fmt: skip
_FLAG_TYPES = {
    "_is_deleted": "boolean", "_deleted_at": "timestamp", "_valid_from": "timestamp", "_valid_to": "timestamp", "_is_current": "boolean",
    "_seq": "bigint", "_seq_to": "bigint",
}  # fmt: skip


class RowCondition(Protocol):
    """A condition for the rows of the source that are in a table."""

    @property
    def rule_option(self) -> str:
        """The option of the rule that says so."""

    @property
    def needs(self) -> frozenset[str]:
        """Columns of the source."""

    def build_expression(self) -> Expression:
        """Return the condition over the columns of the source."""


@dataclass(frozen=True, slots=True)
class RuleExpression:
    """An expression of a rule: its type, and the columns of the source that it needs.

    :param sql: its text
    :param factory: makes it, if not the text does
    """

    sql: str
    type: str
    needs: frozenset[str]
    rule_option: str = "filter"
    factory: Callable[[], Expression] | None = None

    def build_expression(self) -> Expression:
        """Return the expression over the columns of the source."""
        return F.expr(self.sql) if self.factory is None else self.factory()


LEFT = f"{OURS}left_"
"""Prefix of columns with the values of columns that get none any more, see :class:`RetiredColumn`."""


@dataclass(frozen=True, slots=True)
class RetiredColumn:
    """A column of the table that gets no values any more.

    Its column of the source was dropped, or continues in a new one.

    :param until: the first schema version whose events have no values for it
    :param column: the column of the source, as it was called before that version
    :param type: of the table's column
    """

    until: int
    column: str
    type: str


@dataclass(frozen=True)
class Projection:
    """A rule, applied to one source table.

    :param constants: column of the table → its text
    :param places: values of ``{database}`` and the like
    :param place: the table's record of the place that a route gives it, instead of the whole route
    :param variants: column of the source → its column in the table, of those that continue in another one (:mod:`airflow_provider_cdc.targets.lake.schema.column_successors`)
    :param versions: schema version → the same, of the versions that batches bring the table through
    :param left: column of the table → its value from events before its column of the source was dropped, or continued elsewhere
    :param documents: column of the source whose texts are variants in the table; empty if there is none
    """

    rule: TableRule = PLAIN
    constants: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, RuleExpression] = field(default_factory=dict)
    filter: RowCondition | None = None
    place: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    left: Mapping[str, RetiredColumn] = field(default_factory=dict)
    documents: str = ""

    @property
    def mode(self) -> str:
        return self.rule.mode

    @cached_property
    def is_identity(self) -> bool:
        """True if the rule changes nothing of the rows: the table is as the source has it."""
        if self.variants or self.left or self.documents:
            return False
        return not (set(self.rule.to_comparable_form()) - {"partition_by", "cluster_by"})

    @property
    def shard_column(self) -> str:
        """The column with the source table that a row is from; empty if the target table has only one."""
        return next(iter(self.rule.shard), "")

    @property
    def retired_columns(self) -> tuple[str, ...]:
        """Columns of which events may have no value: they leave it out, or have none any more (:attr:`ends_left`)."""
        return tuple(self.left)

    @property
    def ends_left(self) -> bool:
        """True if such columns keep the table's values where events have none any more.

        In other modes rows are new, and have none.
        """
        return self.mode in ("current", "soft_delete")

    def as_of(self, version: int) -> Projection:
        """Return the shape of rows of another schema version that the batches begin with, or go through."""
        if version not in self.versions:
            return self
        left = {name: retired for name, retired in self.left.items() if retired.until <= version}
        return replace(self, variants=self.versions[version], left=left)

    def format_recorded_rule(self) -> str:
        """Format the rule as its table records it; empty if it says nothing about the table."""
        meaning = {**self.rule.to_comparable_form(), **self.place}
        # only the pattern defines these texts, and it may be changed; a shared table has those of each topic
        patterns, groups = self.rule.constant_columns, self.places.keys()
        texts = {name: text for name, text in self.constants.items() if names_in(patterns[name]) - groups}
        if texts and not self.shard_column:
            meaning["texts"] = texts
        return json.dumps(meaning, sort_keys=True, ensure_ascii=False) if meaning else ""

    def build_layout(self) -> TableLayout:
        """Return the layout of the table when it is made."""
        return TableLayout(self.rule.partition_by, self.rule.cluster_by, self.format_recorded_rule())

    def build_source_condition(self) -> Expression:
        """Build the condition that a row of the target table is from this source table."""
        return (
            F.col(quote_name(self.shard_column)) == self.constants[self.shard_column]
            if self.shard_column
            else F.lit(col=True)
        )

    # -- columns ------------------------------------------------------------------------------------------------------

    def map_column_names(self, schema: TableSchema) -> dict[str, str]:
        """Column of the source → its name in the table; those that are left out are not there."""
        columns = self.rule.columns
        keep, drop = lower_names(columns.keep), lower_names(columns.drop)
        rename = {old.lower(): new for old, new in columns.rename.items()}
        selected = [n for n in schema.column_names if n.lower() not in drop and (not keep or n.lower() in keep)]
        return {name: self.variants.get(name) or rename.get(name.lower(), name) for name in selected}

    def map_column_name(self, column: str) -> str | None:
        """Return the name of a column of the source, of any version, in the table."""
        columns, lower = self.rule.columns, column.lower()
        if lower in lower_names(columns.drop) or (columns.keep and lower not in lower_names(columns.keep)):
            return None
        if column in self.variants:
            return self.variants[column]
        return next((new for old, new in columns.rename.items() if old.lower() == lower), column)

    def list_key_columns(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the key of the table's rows."""
        names = self.map_column_names(schema)
        return (*self.rule.shard, *(names[k] for k in schema.key)) if schema.key else ()

    def list_nullable_keys(self, schema: TableSchema) -> frozenset[str]:
        """Columns of the key that may be NULL."""
        names = self.map_column_names(schema)
        return frozenset(names[k] for k in schema.key if schema.get_column(k).nullable)

    def map_column_types(self, schema: TableSchema) -> dict[str, str]:
        """Column of the table → Spark type, without those that the mode keeps up to date itself."""
        return {
            **dict.fromkeys(self.rule.shard, "string"),
            **self.map_source_types(schema),
            **dict.fromkeys(self.rule.columns.constant, "string"),
            **{name: _TYPES[metadata] for name, metadata in self.rule.metadata_columns.items()},
            **{name: retired.type for name, retired in self.left.items()},
        }

    def map_source_types(self, schema: TableSchema) -> dict[str, str]:
        """Columns whose values follow from the source's row."""
        casts = {name.lower(): type_ for name, type_ in self.rule.columns.cast.items()}
        mapped = {
            new: casts.get(old.lower())
            or (VARIANT if old == self.documents else spark_type(schema.get_column(old).type))
            for old, new in self.map_column_names(schema).items()
        }
        return {**mapped, **{name: expression.type for name, expression in self.computed.items()}}

    def map_flag_types(self) -> dict[str, str]:
        """Columns that the mode keeps up to date itself."""
        return {name: _FLAG_TYPES[name] for name in FLAGS[self.mode]}

    def build_comments(self, schema: TableSchema) -> TableComments:
        """Return the comments that the source has for the table and its columns."""
        if self.shard_column:
            return NO_COMMENTS  # each of its tables may say something else
        comments = {new: schema.get_column(old).declared.comment for old, new in self.map_column_names(schema).items()}
        return TableComments(schema.comment or "", {name: text for name, text in comments.items() if text})

    def list_sparse_columns(self, left_out: Sequence[str], schema: TableSchema) -> list[str]:
        """Columns of the table whose values some events leave out.

        :param left_out: columns of the source that events leave out
        :raises TargetError: the rule needs values that are not there
        """
        if self.is_identity or not left_out or self.rule.outbox is not None:  # an outbox has no rows to keep values of
            return [*left_out, *self.retired_columns]
        missing, names = set(left_out), self.map_column_names(schema)
        needed: list[tuple[str, RowCondition]] = [(self.filter.rule_option, self.filter)] if self.filter else []
        if self.mode != "log":
            needed += list(self.computed.items())
        for option, condition in needed:
            if lacking := sorted(condition.needs & missing):
                raise self._lacks(schema, f"{option} needs column {lacking[0]}")
        kept_names = [names[c] for c in left_out if c in names]
        if kept_names and self.filter and self.mode != "log":
            raise self._lacks(
                schema, f"a row that newly passes the {self.filter.rule_option} would lack its value of {kept_names[0]}"
            )
        return self.left_out(left_out, schema)

    def needs_column(self, column: str, schema: TableSchema) -> bool:
        """Return whether something of the table follows from the values that updates give a column of the source."""
        if self.rule.outbox is not None:  # it has nothing of updates
            return False
        conditions = [*self.computed.values(), *([self.filter] if self.filter else [])]
        return column in self.map_column_names(schema) or any(column in condition.needs for condition in conditions)

    def left_out(self, columns: Sequence[str], schema: TableSchema) -> list[str]:
        """Columns of the table whose values follow from some columns of the source, which events leave out."""
        names, missing = self.map_column_names(schema), set(columns)
        sparse = [names[c] for c in columns if c in names]
        return (
            sparse
            + [name for name, expression in self.computed.items() if expression.needs & missing]
            + [*self.retired_columns]
        )

    def _lacks(self, schema: TableSchema, why: str) -> TargetError:
        return TargetError(
            f"The rule of {schema.id} cannot be applied: {why}, but events do not contain it.",
            where=f"rule for {', '.join(self.rule.tables)}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="configure the database to log whole rows (binlog_row_image=FULL, supplemental logging of all columns), or change the rule so that "
            "it does not need the column",
        )

    # -- events -------------------------------------------------------------------------------------------------------

    @property
    def needs_deleted(self) -> bool:
        """True if rows that are deleted stay, with the values that a delete has of them.

        With a filter they keep those with which they passed it.
        """
        return self.mode == "log" or (self.mode == "soft_delete" and self.filter is None)

    @property
    def needed_metadata(self) -> set[str]:
        """The metadata that has to be read of events besides their rows."""
        metadata = set(self.rule.metadata_columns.values())
        if self.mode == "log" and self.filter:
            metadata.add("unavailable")
        return metadata | ({"commit_ts"} if self.mode in ("soft_delete", "history") else set())

    def project_events(self, events: DataFrame, schema: TableSchema, left_out: Sequence[str]) -> DataFrame:
        """Events with the columns of the table.

        :param events: events with the columns of the source; with ``META`` columns as :attr:`needed_metadata` asks for
        """
        if self.is_identity:
            return events
        passes = F.coalesce(self.filter.build_expression(), F.lit(col=False)) if self.filter else F.lit(col=True)
        op = F.col(OP)
        if self.rule.outbox is not None:
            events = events.where(op.isin("c", "r"))
        if self.filter and self.mode in ("current", "history"):
            op = F.when(passes, op).otherwise(F.lit("d"))
        if self.filter and self.mode == "log":
            # of a delete that does not show whether its row passed
            lacks = [F.array_contains(f"{META}unavailable", F.lit(c)) for c in sorted(self.filter.needs & {*left_out})]
            unknown = (F.col(OP) == "d") & reduce(or_, lacks, F.lit(col=False))
            events = events.where(passes | unknown | (F.col(OP) == "t"))
        columns = [F.col(SEQ), op.alias(OP)]
        columns += [value.alias(name) for name, value in self._row(schema, self._telling(schema, left_out)).items()]
        if self.mode in ("soft_delete", "history"):
            columns.append(F.col(COMMITTED))
        if self.mode == "soft_delete":
            columns.append(passes.alias(PASSES))
        if OMITTED in events.columns:
            columns.append(self._kept_names(OMITTED, schema, left_out).alias(OMITTED))
        if FROM in events.columns:
            columns.append(self._from(schema).alias(FROM))
        return events.select(*columns)

    def project_images(self, images: DataFrame, schema: TableSchema, *others: str | Expression) -> DataFrame:
        """Row images of a table without a key, with the columns of the table; those that do not pass the filter are not there."""
        if self.is_identity:
            return images
        if self.filter:
            images = images.where(F.coalesce(self.filter.build_expression(), F.lit(col=False)))
        row = self._row(schema, lambda metadata: F.lit(None))
        return images.select(*[value.alias(name) for name, value in row.items()], *others)

    def project_current_rows(self, rows: DataFrame, schema: TableSchema) -> DataFrame:
        """Project rows that the source has to the columns of the table.

        They are the result of :meth:`project_events` for the last event of each. Columns that describe events are NULL.

        :param rows: with the columns of the source; with :data:`~airflow_provider_cdc.targets.lake.rows.last_event_per_key.UNKNOWN` where values are not known
        """
        if self.is_identity or UNKNOWN not in rows.columns:
            return self.project_images(rows, schema)
        return self.project_images(rows, schema, self._kept_names(UNKNOWN, schema, schema.column_names).alias(UNKNOWN))

    def _row(self, schema: TableSchema, metadata_value: Callable[[str], Expression]) -> dict[str, Expression]:
        """Column of the table → its value."""
        types = self.map_column_types(schema)
        values = {new: F.col(quote_name(old)) for old, new in self.map_column_names(schema).items()}
        if (name := self.map_column_names(schema).get(self.documents, "")) and types[name] == VARIANT:
            values[name] = as_variant(values[name])
        values |= {name: expression.build_expression() for name, expression in self.computed.items()}
        values |= {name: F.lit(text) for name, text in self.constants.items()}
        values |= {name: metadata_value(metadata) for name, metadata in self.rule.metadata_columns.items()}
        values |= {name: F.col(quote_name(f"{LEFT}{name}")) for name in self.left}
        return {name: values[name].cast(type_) for name, type_ in types.items()}

    def _telling(self, schema: TableSchema, left_out: Sequence[str]) -> Callable[[str], Expression]:
        def metadata_value(metadata: str) -> Expression:
            if metadata in self.places:
                return F.lit(self.places[metadata])
            if metadata == "unavailable":
                return self._kept_names(f"{META}{metadata}", schema, left_out)
            return F.col({"op": OP, "seq": SEQ}.get(metadata, f"{META}{metadata}"))

        return metadata_value

    def _kept_names(self, column: str, schema: TableSchema, left_out: Sequence[str]) -> Expression:
        """Names of the table's columns whose values an event leaves out.

        :param column: the one with the source's names
        """
        names = self.map_column_names(schema)
        of = [F.when(F.array_contains(column, F.lit(c)), F.lit(names[c])) for c in left_out if c in names]
        for name, expression in self.computed.items():
            if lacking := [F.array_contains(column, F.lit(c)) for c in left_out if c in expression.needs]:
                of.append(F.when(reduce(or_, lacking), F.lit(name)))
        of += [F.when(F.array_contains(column, F.lit(f"{LEFT}{name}")), F.lit(name)) for name in self.retired_columns]
        return F.array_compact(F.array(*of)).cast("array<string>") if of else F.array().cast("array<string>")

    def _from(self, schema: TableSchema) -> Expression:
        names, types = self.map_column_names(schema), self.map_column_types(schema)
        parts = [F.lit(self.constants[name]).alias(name) for name in self.rule.shard]
        parts += [F.col(f"{FROM}.{quote_name(k)}").cast(types[names[k]]).alias(names[k]) for k in schema.key]
        return F.when(F.col(FROM).isNotNull(), F.struct(*parts))


WHOLE = Projection()
"""The table is as the source has it."""


def laid_out_by(layout: str) -> str:
    """Return the column of a partition or cluster.

    >>> laid_out_by("bucket(16, id)"), laid_out_by("country")
    ('id', 'country')
    """
    return layout[layout.find("(") + 1 : -1].rpartition(",")[2].strip() if layout.endswith(")") else layout


def lower_names(names: Iterable[str]) -> set[str]:
    """Names as Spark compares them."""
    return {name.lower() for name in names}
