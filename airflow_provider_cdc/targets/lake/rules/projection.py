"""What a rule makes of the rows of one source table: which columns its target table has, and what is in them.

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

from airflow_provider_cdc.core.config.suggestions import names_in
from airflow_provider_cdc.core.config.table_rules import FLAGS, PLAIN, TableRule
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.schema import TableSchema
from airflow_provider_cdc.targets.lake.formats.target import NO_COMMENTS, Comments, TableLayout
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import FROM, KEPT, OP, OURS, SEQ, UNKNOWN
from airflow_provider_cdc.targets.lake.types.spark_types import quoted, spark_type
from airflow_provider_cdc.targets.lake.types.variant_columns import VARIANT, as_variant

META = f"{OURS}meta_"
"""What the names of columns begin with that tell about events, before they get the names of the table's columns."""
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


class Condition(Protocol):
    """Which rows of the source are in a table."""

    @property
    def what(self) -> str:
        """The option of the rule that says so."""

    @property
    def needs(self) -> frozenset[str]:
        """Columns of the source."""

    def expression(self) -> Expression:
        """It, over the columns of the source."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression of a rule: its type, and the columns of the source that it needs.

    :param sql: its text
    :param made: makes it, if not the text does
    """

    sql: str
    type: str
    needs: frozenset[str]
    what: str = "filter"
    made: Callable[[], Expression] | None = None

    def expression(self) -> Expression:
        """It, over the columns of the source."""
        return F.expr(self.sql) if self.made is None else self.made()


LEFT = f"{OURS}left_"
"""What the names of columns begin with that have the values of columns that get none any more, see :class:`Left`."""


@dataclass(frozen=True, slots=True)
class Left:
    """A column of the table that gets no values any more, as its column of the source was dropped, or goes on in a new one.

    :param until: the first schema version whose events have no values for it
    :param column: the column of the source, as it was called before that version
    :param type: of the table's column
    """

    until: int
    column: str
    type: str


@dataclass(frozen=True)
class Shape:
    """A rule, applied to one source table.

    :param constants: column of the table → its text
    :param places: what ``{database}`` and the like are
    :param place: what the table records of the place that a route gives it, instead of the whole route
    :param variants: column of the source → its column in the table, of those that go on in another one (:mod:`airflow_provider_cdc.targets.lake.schema.column_successors`)
    :param versions: schema version → the same, of the versions that batches bring the table through
    :param left: column of the table → what it gets from events before its column of the source was dropped, or went on elsewhere
    :param documents: column of the source whose texts are variants in the table; empty if there is none
    """

    rule: TableRule = PLAIN
    constants: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, Computed] = field(default_factory=dict)
    filter: Condition | None = None
    place: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    left: Mapping[str, Left] = field(default_factory=dict)
    documents: str = ""

    @property
    def mode(self) -> str:
        return self.rule.mode

    @cached_property
    def plain(self) -> bool:
        """Whether nothing becomes of the rows: the table is as the source has it."""
        if self.variants or self.left or self.documents:
            return False
        return not (set(self.rule.meaning()) - {"partition_by", "cluster_by"})

    @property
    def shared(self) -> str:
        """The column that tells which source table a row is from; empty if the target table has only one."""
        return next(iter(self.rule.shard), "")

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of which events may have no value: they leave it out, or have none any more (:attr:`ends_left`)."""
        return tuple(self.left)

    @property
    def ends_left(self) -> bool:
        """Whether such columns keep the table's values where events have none any more. In other modes rows are new, and have none."""
        return self.mode in ("current", "soft_delete")

    def as_of(self, version: int) -> Shape:
        """The shape of rows of another schema version that the batches begin with, or go through."""
        if version not in self.versions:
            return self
        left = {name: one for name, one in self.left.items() if one.until <= version}
        return replace(self, variants=self.versions[version], left=left)

    def stored(self) -> str:
        """The rule as its table records it; empty if it says nothing about the table."""
        meaning = {**self.rule.meaning(), **self.place}
        # which texts these are, only the pattern says, which may be changed; a shared table has those of each topic
        given, groups = self.rule.constants, self.places.keys()
        texts = {name: text for name, text in self.constants.items() if names_in(given[name]) - groups}
        if texts and not self.shared:
            meaning["texts"] = texts
        return json.dumps(meaning, sort_keys=True, ensure_ascii=False) if meaning else ""

    def layout(self) -> TableLayout:
        """How the table is laid out when it is made."""
        return TableLayout(self.rule.partition_by, self.rule.cluster_by, self.stored())

    def mine(self) -> Expression:
        """Whether a row of the target table is from this source table."""
        return F.col(quoted(self.shared)) == self.constants[self.shared] if self.shared else F.lit(col=True)

    # -- columns ------------------------------------------------------------------------------------------------------

    def names(self, schema: TableSchema) -> dict[str, str]:
        """Column of the source → its name in the table; those that are left out are not there."""
        columns = self.rule.columns
        keep, drop = lowered(columns.keep), lowered(columns.drop)
        rename = {old.lower(): new for old, new in columns.rename.items()}
        wanted = [n for n in schema.names if n.lower() not in drop and (not keep or n.lower() in keep)]
        return {name: self.variants.get(name) or rename.get(name.lower(), name) for name in wanted}

    def name(self, column: str) -> str | None:
        """The name of a column of the source, of any version, in the table."""
        columns, lower = self.rule.columns, column.lower()
        if lower in lowered(columns.drop) or (columns.keep and lower not in lowered(columns.keep)):
            return None
        if column in self.variants:
            return self.variants[column]
        return next((new for old, new in columns.rename.items() if old.lower() == lower), column)

    def key(self, schema: TableSchema) -> tuple[str, ...]:
        """The key of the table's rows."""
        names = self.names(schema)
        return (*self.rule.shard, *(names[k] for k in schema.key)) if schema.key else ()

    def nullable(self, schema: TableSchema) -> frozenset[str]:
        """Columns of the key that may be NULL."""
        names = self.names(schema)
        return frozenset(names[k] for k in schema.key if schema.column(k).nullable)

    def types(self, schema: TableSchema) -> dict[str, str]:
        """Column of the table → Spark type, without those that the mode keeps up to date itself."""
        return {
            **dict.fromkeys(self.rule.shard, "string"),
            **self.values(schema),
            **dict.fromkeys(self.rule.columns.constant, "string"),
            **{name: _TYPES[what] for name, what in self.rule.metadata.items()},
            **{name: found.type for name, found in self.left.items()},
        }

    def values(self, schema: TableSchema) -> dict[str, str]:
        """Columns whose values follow from the source's row."""
        casts = {name.lower(): type_ for name, type_ in self.rule.columns.cast.items()}
        mapped = {
            new: casts.get(old.lower()) or (VARIANT if old == self.documents else spark_type(schema.column(old).type))
            for old, new in self.names(schema).items()
        }
        return {**mapped, **{name: found.type for name, found in self.computed.items()}}

    def flags(self) -> dict[str, str]:
        """Columns that the mode keeps up to date itself."""
        return {name: _FLAG_TYPES[name] for name in FLAGS[self.mode]}

    def comments(self, schema: TableSchema) -> Comments:
        """What the source says of the table and its columns."""
        if self.shared:
            return NO_COMMENTS  # each of its tables may say something else
        said = {new: schema.column(old).declared.comment for old, new in self.names(schema).items()}
        return Comments(schema.comment or "", {name: text for name, text in said.items() if text})

    def sparse(self, left_out: Sequence[str], schema: TableSchema) -> list[str]:
        """Columns of the table whose values some events leave out.

        :param left_out: columns of the source that events leave out
        :raises TargetError: the rule needs values that are not there
        """
        if self.plain or not left_out or self.rule.outbox is not None:  # an outbox has no rows to keep values of
            return [*left_out, *self.carried]
        missing, names = set(left_out), self.names(schema)
        needed: list[tuple[str, Condition]] = [(self.filter.what, self.filter)] if self.filter else []
        if self.mode != "log":
            needed += list(self.computed.items())
        for what, found in needed:
            if lacking := sorted(found.needs & missing):
                raise self._lacks(schema, f"{what} needs column {lacking[0]}")
        kept = [names[c] for c in left_out if c in names]
        if kept and self.filter and self.mode != "log":
            raise self._lacks(
                schema, f"a row that comes to pass the {self.filter.what} would lack its value of {kept[0]}"
            )
        return self.left_out(left_out, schema)

    def needs(self, column: str, schema: TableSchema) -> bool:
        """Whether something of the table follows from the values that updates give a column of the source."""
        if self.rule.outbox is not None:  # it has nothing of updates
            return False
        found = [*self.computed.values(), *([self.filter] if self.filter else [])]
        return column in self.names(schema) or any(column in one.needs for one in found)

    def left_out(self, columns: Sequence[str], schema: TableSchema) -> list[str]:
        """Columns of the table whose values follow from some columns of the source, which events leave out."""
        names, missing = self.names(schema), set(columns)
        kept = [names[c] for c in columns if c in names]
        return kept + [name for name, found in self.computed.items() if found.needs & missing] + [*self.carried]

    def _lacks(self, schema: TableSchema, why: str) -> TargetError:
        return TargetError(
            f"The rule of {schema.id} cannot be applied: {why}, and events leave it out.",
            where=f"rule for {', '.join(self.rule.tables)}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="have the database log whole rows (binlog_row_image=FULL, supplemental logging of all columns), or change the rule so that "
            "it does not need the column",
        )

    # -- events -------------------------------------------------------------------------------------------------------

    @property
    def needs_deleted(self) -> bool:
        """Whether rows that are deleted stay, with the values that a delete has of them. With a filter they keep those with which they
        passed it."""
        return self.mode == "log" or (self.mode == "soft_delete" and self.filter is None)

    @property
    def meta(self) -> set[str]:
        """What has to be read of events besides their rows."""
        wanted = set(self.rule.metadata.values())
        if self.mode == "log" and self.filter:
            wanted.add("unavailable")
        return wanted | ({"commit_ts"} if self.mode in ("soft_delete", "history") else set())

    def events(self, found: DataFrame, schema: TableSchema, left_out: Sequence[str]) -> DataFrame:
        """Events with the columns of the table.

        :param found: events with the columns of the source; with ``META`` columns as :attr:`meta` asks for
        """
        if self.plain:
            return found
        passes = F.coalesce(self.filter.expression(), F.lit(col=False)) if self.filter else F.lit(col=True)
        op = F.col(OP)
        if self.rule.outbox is not None:
            found = found.where(op.isin("c", "r"))
        if self.filter and self.mode in ("current", "history"):
            op = F.when(passes, op).otherwise(F.lit("d"))
        if self.filter and self.mode == "log":
            # of a delete that does not tell whether its row passed
            lacks = [F.array_contains(f"{META}unavailable", F.lit(c)) for c in sorted(self.filter.needs & {*left_out})]
            unknown = (F.col(OP) == "d") & reduce(or_, lacks, F.lit(col=False))
            found = found.where(passes | unknown | (F.col(OP) == "t"))
        columns = [F.col(SEQ), op.alias(OP)]
        columns += [value.alias(name) for name, value in self._row(schema, self._telling(schema, left_out)).items()]
        if self.mode in ("soft_delete", "history"):
            columns.append(F.col(COMMITTED))
        if self.mode == "soft_delete":
            columns.append(passes.alias(PASSES))
        if KEPT in found.columns:
            columns.append(self._kept(KEPT, schema, left_out).alias(KEPT))
        if FROM in found.columns:
            columns.append(self._from(schema).alias(FROM))
        return found.select(*columns)

    def images(self, found: DataFrame, schema: TableSchema, *others: str | Expression) -> DataFrame:
        """Row images of a table without a key, with the columns of the table; those that do not pass the filter are not there."""
        if self.plain:
            return found
        if self.filter:
            found = found.where(F.coalesce(self.filter.expression(), F.lit(col=False)))
        row = self._row(schema, lambda what: F.lit(None))
        return found.select(*[value.alias(name) for name, value in row.items()], *others)

    def present(self, found: DataFrame, schema: TableSchema) -> DataFrame:
        """Rows that the source has, with the columns of the table: what :meth:`events` makes of the last event of each. Columns that tell about
        events are NULL.

        :param found: with the columns of the source; with :data:`~airflow_provider_cdc.targets.lake.rows.last_event_per_key.UNKNOWN` where values are not known
        """
        if self.plain or UNKNOWN not in found.columns:
            return self.images(found, schema)
        return self.images(found, schema, self._kept(UNKNOWN, schema, schema.names).alias(UNKNOWN))

    def _row(self, schema: TableSchema, told: Callable[[str], Expression]) -> dict[str, Expression]:
        """Column of the table → its value."""
        types = self.types(schema)
        values = {new: F.col(quoted(old)) for old, new in self.names(schema).items()}
        if (name := self.names(schema).get(self.documents, "")) and types[name] == VARIANT:
            values[name] = as_variant(values[name])
        values |= {name: found.expression() for name, found in self.computed.items()}
        values |= {name: F.lit(text) for name, text in self.constants.items()}
        values |= {name: told(what) for name, what in self.rule.metadata.items()}
        values |= {name: F.col(quoted(f"{LEFT}{name}")) for name in self.left}
        return {name: values[name].cast(type_) for name, type_ in types.items()}

    def _telling(self, schema: TableSchema, left_out: Sequence[str]) -> Callable[[str], Expression]:
        def told(what: str) -> Expression:
            if what in self.places:
                return F.lit(self.places[what])
            if what == "unavailable":
                return self._kept(f"{META}{what}", schema, left_out)
            return F.col({"op": OP, "seq": SEQ}.get(what, f"{META}{what}"))

        return told

    def _kept(self, column: str, schema: TableSchema, left_out: Sequence[str]) -> Expression:
        """Names of the table's columns whose values an event leaves out.

        :param column: the one with the source's names
        """
        names = self.names(schema)
        of = [F.when(F.array_contains(column, F.lit(c)), F.lit(names[c])) for c in left_out if c in names]
        for name, found in self.computed.items():
            if lacking := [F.array_contains(column, F.lit(c)) for c in left_out if c in found.needs]:
                of.append(F.when(reduce(or_, lacking), F.lit(name)))
        of += [F.when(F.array_contains(column, F.lit(f"{LEFT}{name}")), F.lit(name)) for name in self.carried]
        return F.array_compact(F.array(*of)).cast("array<string>") if of else F.array().cast("array<string>")

    def _from(self, schema: TableSchema) -> Expression:
        names, types = self.names(schema), self.types(schema)
        parts = [F.lit(self.constants[name]).alias(name) for name in self.rule.shard]
        parts += [F.col(f"{FROM}.{quoted(k)}").cast(types[names[k]]).alias(names[k]) for k in schema.key]
        return F.when(F.col(FROM).isNotNull(), F.struct(*parts))


WHOLE = Shape()
"""The table is as the source has it."""


def laid_out_by(given: str) -> str:
    """The column of a partition or cluster.

    >>> laid_out_by("bucket(16, id)"), laid_out_by("country")
    ('id', 'country')
    """
    return given[given.find("(") + 1 : -1].rpartition(",")[2].strip() if given.endswith(")") else given


def lowered(names: Iterable[str]) -> set[str]:
    """Names as Spark compares them."""
    return {name.lower() for name in names}
