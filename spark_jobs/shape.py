"""What a rule makes of the rows of one source table: which columns its target table has, and what is in them.

A shape is made for a table schema, and checks there what the rule says about it: names of columns, SQL expressions, the key.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.table_rules import FLAGS, PLAIN, Matched, TableRule, nearest
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.schema import TableSchema
from spark_jobs.datatypes import holds, quoted, spark_type, structure
from spark_jobs.last import FROM, KEPT, OP, OURS, SEQ
from spark_jobs.targets.base import TableLayout

log = logging.getLogger("spark_jobs.shape")

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


@dataclass(frozen=True, slots=True)
class Computed:
    """A SQL expression of a rule: its type, and the columns of the source that it needs."""

    sql: str
    type: str
    needs: frozenset[str]


@dataclass(frozen=True)
class Shape:
    """A rule, applied to one source table.

    :param constants: column of the table → its text
    :param places: what ``{database}`` and the like are
    """

    rule: TableRule = PLAIN
    constants: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, Computed] = field(default_factory=dict)
    filter: Computed | None = None

    @property
    def mode(self) -> str:
        return self.rule.mode

    @cached_property
    def plain(self) -> bool:
        """Whether nothing becomes of the rows: the table is as the source has it."""
        return not (set(self.rule.meaning()) - {"partition_by", "cluster_by"})

    @property
    def shared(self) -> str:
        """The column that tells which source table a row is from; empty if the target table has only one."""
        return next(iter(self.rule.shard), "")

    def stored(self) -> str:
        """The rule as its table records it; empty if it says nothing about the table."""
        meaning = self.rule.meaning()
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
        keep, drop = _lower(columns.keep), _lower(columns.drop)
        rename = {old.lower(): new for old, new in columns.rename.items()}
        wanted = [n for n in schema.names if n.lower() not in drop and (not keep or n.lower() in keep)]
        return {name: rename.get(name.lower(), name) for name in wanted}

    def name(self, column: str) -> str | None:
        """The name of a column of the source, of any version, in the table."""
        columns, lower = self.rule.columns, column.lower()
        if lower in _lower(columns.drop) or (columns.keep and lower not in _lower(columns.keep)):
            return None
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
        }

    def values(self, schema: TableSchema) -> dict[str, str]:
        """Columns whose values follow from the source's row."""
        casts = {name.lower(): type_ for name, type_ in self.rule.columns.cast.items()}
        mapped = {
            new: casts.get(old.lower()) or spark_type(schema.column(old).type)
            for old, new in self.names(schema).items()
        }
        return {**mapped, **{name: found.type for name, found in self.computed.items()}}

    def flags(self) -> dict[str, str]:
        """Columns that the mode keeps up to date itself."""
        return {name: _FLAG_TYPES[name] for name in FLAGS[self.mode]}

    def sparse(self, left_out: Sequence[str], schema: TableSchema) -> list[str]:
        """Columns of the table whose values some events leave out.

        :param left_out: columns of the source that events leave out
        :raises TargetError: the rule needs values that are not there
        """
        if self.plain or not left_out:
            return list(left_out)
        missing, names = set(left_out), self.names(schema)
        needed = [("filter", self.filter)] if self.filter else []
        if self.mode != "log":
            needed += list(self.computed.items())
        for what, found in needed:
            assert found is not None
            if lacking := sorted(found.needs & missing):
                raise self._lacks(schema, f"{what} needs column {lacking[0]}")
        kept = [names[c] for c in left_out if c in names]
        if kept and self.filter and self.mode != "log":
            raise self._lacks(schema, f"a row that comes to pass the filter would lack its value of {kept[0]}")
        return kept + [name for name, found in self.computed.items() if found.needs & missing]

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
    def meta(self) -> set[str]:
        """What has to be read of events besides their rows."""
        wanted = set(self.rule.metadata.values())
        return wanted | ({"commit_ts"} if self.mode in ("soft_delete", "history") else set())

    def events(self, found: DataFrame, schema: TableSchema, left_out: Sequence[str]) -> DataFrame:
        """Events with the columns of the table.

        :param found: events with the columns of the source; with ``META`` columns as :attr:`meta` asks for
        """
        if self.plain:
            return found
        passes = F.coalesce(self._sql(self.filter), F.lit(col=False)) if self.filter else F.lit(col=True)
        op = F.col(OP)
        if self.filter and self.mode in ("current", "history"):
            op = F.when(passes, op).otherwise(F.lit("d"))
        if self.filter and self.mode == "log":
            found = found.where(passes | (F.col(OP) == "t"))
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

    def images(self, found: DataFrame, schema: TableSchema, *others: str) -> DataFrame:
        """Row images of a table without a key, with the columns of the table; those that do not pass the filter are not there."""
        if self.plain:
            return found
        if self.filter:
            found = found.where(F.coalesce(self._sql(self.filter), F.lit(col=False)))
        row = self._row(schema, lambda what: F.lit(None))
        return found.select(*[value.alias(name) for name, value in row.items()], *others)

    def _row(self, schema: TableSchema, told: Callable[[str], Expression]) -> dict[str, Expression]:
        """Column of the table → its value."""
        values = {new: F.col(quoted(old)) for old, new in self.names(schema).items()}
        values |= {name: self._sql(found) for name, found in self.computed.items()}
        values |= {name: F.lit(text) for name, text in self.constants.items()}
        values |= {name: told(what) for name, what in self.rule.metadata.items()}
        return {name: values[name].cast(type_) for name, type_ in self.types(schema).items()}

    def _telling(self, schema: TableSchema, left_out: Sequence[str]) -> Callable[[str], Expression]:
        def told(what: str) -> Expression:
            if what in self.places:
                return F.lit(self.places[what])
            if what == "unavailable":
                return self._kept(f"{META}{what}", schema, left_out)
            return F.col({"op": OP, "seq": SEQ}.get(what, f"{META}{what}"))

        return told

    @staticmethod
    def _sql(found: Computed) -> Expression:
        return F.expr(found.sql)

    def _kept(self, column: str, schema: TableSchema, left_out: Sequence[str]) -> Expression:
        """Names of the table's columns whose values an event leaves out.

        :param column: the one with the source's names
        """
        names = self.names(schema)
        of = [F.when(F.array_contains(column, F.lit(c)), F.lit(names[c])) for c in left_out if c in names]
        for name, found in self.computed.items():
            if lacking := [F.array_contains(column, F.lit(c)) for c in left_out if c in found.needs]:
                of.append(F.when(reduce(or_, lacking), F.lit(name)))
        return F.array_compact(F.array(*of)).cast("array<string>") if of else F.array().cast("array<string>")

    def _from(self, schema: TableSchema) -> Expression:
        names, types = self.names(schema), self.types(schema)
        parts = [F.lit(self.constants[name]).alias(name) for name in self.rule.shard]
        parts += [F.col(f"{FROM}.{quoted(k)}").cast(types[names[k]]).alias(names[k]) for k in schema.key]
        return F.when(F.col(FROM).isNotNull(), F.struct(*parts))


WHOLE = Shape()
"""The table is as the source has it."""


def shape(
    spark: SparkSession, matched: Matched, connector: str, topic: str, schema: TableSchema, *, strict: bool = True
) -> Shape:
    """The shape of a source table.

    :param strict: names of columns that the table does not have are refused; otherwise only SQL needs those that it names, as the source may
        have dropped the others
    :raises ConfigError: the rule does not fit the table
    """
    rule = matched.rule
    if rule is PLAIN:
        return WHOLE
    table = schema.id
    places = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
    constants = {name: text.format(**places, **matched.groups) for name, text in rule.constants.items()}
    found = Shape(rule, constants, places)
    _check_names(found, schema, strict=strict)
    computed = {
        name: _analyzed(spark, found, schema, f"columns.computed.{name}", sql)
        for name, sql in rule.columns.computed.items()
    }
    where = None if rule.filter is None else _analyzed(spark, found, schema, "filter", rule.filter)
    if where is not None and where.type != "boolean":
        raise _wrong(found, schema, f"filter is of the type {where.type}, and has to be a condition")
    made = Shape(rule, constants, places, computed, where)
    _check_types(spark, made, schema)
    _check_key(made, schema)
    return made


def _check_names(made: Shape, schema: TableSchema, *, strict: bool) -> None:
    columns, there = made.rule.columns, _lower(schema.names)
    for what in ("keep", "drop", "rename", "cast"):
        for name in getattr(columns, what):
            if name.lower() in there:
                continue
            if strict:
                raise _wrong(
                    made,
                    schema,
                    f"columns.{what} names column {name!r}, which the table does not have; {nearest(name, schema.names)}",
                )
            log.warning("%s has no column %s any more, which columns.%s of its rule names.", schema.id, name, what)
    if not made.names(schema):
        raise _wrong(made, schema, "it leaves no column of the source")


def _check_types(spark: SparkSession, made: Shape, schema: TableSchema) -> None:
    for name, type_ in made.rule.columns.cast.items():
        old = next((c for c in schema.columns if c.name.lower() == name.lower()), None)
        if old is None:
            continue
        empty = spark.createDataFrame([], structure({old.name: spark_type(old.type)}))
        try:
            got = empty.select(F.col(quoted(old.name)).cast(type_)).schema.fields[0].dataType.simpleString()
        except (PySparkException, ValueError) as e:
            raise _wrong(
                made, schema, f"columns.cast.{name}: {spark_type(old.type)} cannot be cast to {type_!r}: {_short(e)}"
            ) from e
        if got != type_:
            raise _wrong(made, schema, f"columns.cast.{name}: write {type_!r} as {got!r}")
    names = [*made.types(schema), *made.flags()]
    if twice := sorted({n for n in names if [m.lower() for m in names].count(n.lower()) > 1}):
        raise _wrong(
            made,
            schema,
            f"the table would have two columns called {twice[0]}: rename one of them in columns.rename or columns.metadata",
        )
    if len(names) < len(made.names(schema)) + len(made.computed) + len(made.constants) + len(made.rule.metadata) + len(
        made.flags()
    ):
        news = list(made.names(schema).values())
        both = [n for n in news if n in (*made.computed, *made.constants, *made.rule.metadata) or news.count(n) > 1]
        raise _wrong(
            made,
            schema,
            f"the table would have two columns called {both[0]}: rename one of them in columns.rename or columns.metadata",
        )
    for what in ("partition_by", "cluster_by"):
        for given in getattr(made.rule, what):
            name = given[given.find("(") + 1 : -1].rpartition(",")[2].strip() if given.endswith(")") else given
            if name.lower() not in _lower(names):
                raise _wrong(
                    made, schema, f"{what} names column {name!r}, which the table will not have; {nearest(name, names)}"
                )


def _check_key(made: Shape, schema: TableSchema) -> None:
    mode, names = made.mode, made.names(schema)
    if mode == "log":
        return
    for name in schema.key:
        if name not in names:
            raise _wrong(made, schema, f"column {name} is part of the key, and cannot be left out in mode {mode}")
        old, new = spark_type(schema.column(name).type), made.types(schema)[names[name]]
        if not (holds(new, old) or (new == "string" and old not in ("float", "double", "binary"))):
            raise _wrong(made, schema, f"column {name} is part of the key: as {new}, different keys could become one")
    if not schema.key and (mode != "current" or made.shared or made.rule.metadata):
        what = (
            f"mode {mode}"
            if mode != "current"
            else "a table that is shared"
            if made.shared
            else "a column of columns.metadata"
        )
        raise _wrong(
            made,
            schema,
            f"{what} needs a key, and the table has none: give it one with message.key.columns, or use mode log",
        )


def _analyzed(spark: SparkSession, made: Shape, schema: TableSchema, what: str, sql: str) -> Computed:
    """A SQL expression over the columns of the source, and in mode ``log`` also over what its tables tell about events."""
    types: dict[str, Any] = {c.name: spark_type(c.type) for c in schema.columns}
    empty = spark.createDataFrame([], structure(types))
    try:
        selected = empty.select(F.expr(sql).alias("v"))
        plan = selected._jdf.queryExecution().analyzed()
        expression = plan.expressions().head()
        # an aggregate, and what makes rows, would have got another plan
        rows = empty.where(F.expr(sql).isNotNull()) if plan.nodeName() == "Project" else None
        if rows is None:
            raise _wrong(made, schema, f"{what}: {sql!r} is not an expression about one row")
        needs = expression.references().toSeq()
        found = frozenset(needs.apply(i).name() for i in range(needs.size()))
        if not expression.deterministic() or _NOW & {node.lower() for node in _functions(expression)}:
            raise _wrong(
                made,
                schema,
                f"{what}: {sql!r} gives another result each time, so that a repeated run would give another table",
            )
        return Computed(sql, selected.schema.fields[0].dataType.simpleString(), found)
    except PySparkException as e:
        if getattr(e, "getCondition", lambda: "")() in (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION",
        ):
            name = str((e.getMessageParameters() or {}).get("objectName", "")).strip("`").rpartition("`.`")[2]
            raise _wrong(
                made,
                schema,
                f"{what} names column {name!r}, which the table does not have; {nearest(name, schema.names)}",
            ) from e
        raise _wrong(made, schema, f"{what}: {sql!r} cannot be used: {_short(e)}") from e


_NOW = frozenset(
    {
        "current_timestamp",
        "current_date",
        "now",
        "localtimestamp",
        "current_time",
        "current_user",
        "current_timestamp()",
    }
)


def _functions(expression: Any) -> Iterable[str]:
    """Names of the functions of an expression."""
    yield str(expression.prettyName())
    children = expression.children()
    for i in range(children.size()):
        yield from _functions(children.apply(i))


def _wrong(made: Shape, schema: TableSchema, what: str) -> ConfigError:
    return ConfigError(
        f"The rule for {', '.join(made.rule.tables)} does not fit {schema.id}: {what}.",
        safe="No table was changed.",
        remedy="correct the rule; rules are looked at in their order, and a rule for this table alone may stand before it",
    )


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:300]


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}
