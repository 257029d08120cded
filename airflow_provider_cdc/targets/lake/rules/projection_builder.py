"""Makes the shape of a source table from its rule, and checks the rule against the table: names of columns, types, SQL, the key."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.core.config.name_suggestions import suggest_names
from airflow_provider_cdc.core.config.target_table_rules import PLAIN, MatchedRule
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.formats.jvm_errors import find_error_condition
from airflow_provider_cdc.targets.lake.rules.outbox_columns import of_an_outbox, payload_fields
from airflow_provider_cdc.targets.lake.rules.projection import (
    WHOLE,
    Projection,
    RowCondition,
    RuleExpression,
    laid_out_by,
    lower_names,
)
from airflow_provider_cdc.targets.lake.rules.row_routing import (
    CheckedRoute,
    CheckedRouteStep,
    RouteBranch,
    RouteCondition,
)
from airflow_provider_cdc.targets.lake.spark_releases.python_features import VARIANT_TYPE
from airflow_provider_cdc.targets.lake.types.spark_types import (
    build_struct_type,
    can_hold_type,
    is_storable_type,
    parts_of,
    quote_name,
    spark_type,
)

log = logging.getLogger("airflow_provider_cdc.targets.lake.rules.projection_builder")


def build_projection(
    spark: SparkSession,
    matched: MatchedRule,
    connector: str,
    topic: str,
    schema: TableSchema,
    *,
    strict: bool = True,
    place: RouteBranch | None = None,
    before: Collection[str] = (),
) -> Projection:
    """Build the shape of a source table.

    :param place: of a rule with a route, the one whose rows are meant; without it, they are those of all
    :param strict: names of columns that the table does not have are refused; otherwise only SQL needs those that it names, as the source may
        have dropped the others
    :param before: columns that the table is known to have had: these may be named all the same
    :raises ConfigError: the rule does not fit the table
    """
    rule = matched.rule
    if rule is PLAIN:
        return replace(WHOLE, documents=column) if (column := _variant_column(schema)) else WHOLE
    table = schema.id
    places = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
    constants = matched.build_constants(connector, topic, table)
    if rule.outbox is not None:
        _check_outbox(Projection(rule), schema, strict=strict)
        rule = of_an_outbox(rule, schema)
    base = Projection(rule, constants, places)
    _check_names(base, schema, lower_names(before) if strict else None)
    computed = {
        name: _computed(spark, base, schema, f"columns.computed.{name}", sql)
        for name, sql in rule.columns.computed.items()
    }
    if rule.outbox is not None:
        computed |= payload_fields(rule.outbox, schema)
    where: RowCondition | None = _condition(spark, base, schema, "filter", rule.filter)
    if place is not None:
        going = build_routing(spark, matched, schema)
        where = RouteCondition(going, place, where)
    recorded = {} if place is None else place.describe_meaning(rule)
    projection = Projection(rule, constants, places, computed, where, recorded, documents=_variant_column(schema))
    _check_types(spark, projection, schema, strict=strict)
    _check_key(projection, schema)
    return projection


def _variant_column(schema: TableSchema) -> str:
    """Return the column whose texts become variants; empty if there is none, or if Spark has no variants (before 4.0)."""
    if schema.variant_column and VARIANT_TYPE is None:
        _log_texts(str(schema.id))
        return ""
    return schema.variant_column


@cache
def _log_texts(table: str) -> None:
    log.warning("Documents of %s are stored as JSON text (STRING): VARIANT needs Spark 4.0 or newer.", table)


def build_routing(spark: SparkSession, matched: MatchedRule, schema: TableSchema) -> CheckedRoute:
    """Build the route of a rule that has one, checked against a source table.

    :raises ConfigError: the route does not fit the table
    """
    rule, projection = matched.rule, Projection(matched.rule)
    if rule.outbox is not None:
        return CheckedRoute((CheckedRouteStep(None, _by_column(projection, schema, rule.outbox.by)),))
    steps = []
    for number, step in enumerate(rule.route, start=1):
        when = _condition(spark, projection, schema, f"route: step {number}: when", step.when)
        by = None if step.by is None else _analyzed(spark, projection, schema, f"route: step {number}: by", step.by)
        if by is not None and by.type.startswith(_NO_TEXTS):
            raise _wrong(
                projection, schema, f"route: step {number}: by has the type {by.type}, which cannot be used as text"
            )
        steps.append(CheckedRouteStep(when, by))
    return CheckedRoute(tuple(steps))


_NO_TEXTS = ("array", "map", "struct", "binary", "variant", "void")
"""Types whose values cannot be part of a location."""


def _condition(
    spark: SparkSession, projection: Projection, schema: TableSchema, option: str, sql: str | None
) -> RuleExpression | None:
    if sql is None:
        return None
    expression = _analyzed(spark, projection, schema, option, sql)
    if expression.type != "boolean":
        raise _wrong(projection, schema, f"{option} has the type {expression.type}, but must be a condition")
    return expression


def _by_column(projection: Projection, schema: TableSchema, column: str) -> RuleExpression:
    """Build the column of ``route.by.field``; its name is no SQL."""
    name = next((c.name for c in schema.columns if c.name.lower() == column.lower()), None)
    if name is None:
        problem = f"outbox: route.by.field names column {column!r}, which the table does not have"
        raise _wrong(projection, schema, f"{problem}; {suggest_names(column, schema.column_names)}")
    type_ = spark_type(schema.get_column(name).type)
    if type_.startswith(_NO_TEXTS):
        raise _wrong(
            projection, schema, f"outbox: route.by.field {name} has the type {type_}, which cannot be used as text"
        )
    return RuleExpression(quote_name(name), type_, frozenset({name}), factory=lambda: F.col(quote_name(name)))


def _check_outbox(projection: Projection, schema: TableSchema, *, strict: bool) -> None:
    outbox, there = projection.rule.outbox, lower_names(schema.column_names)
    assert outbox is not None
    for option, column, _ in outbox.list_columns(schema.column_names):
        if column.lower() in there:
            continue
        if strict:
            problem = f"outbox: {option} names column {column!r}, which the table does not have"
            raise _wrong(projection, schema, f"{problem}; {suggest_names(column, schema.column_names)}")
        log.warning("%s no longer has the column %s, which %s of its outbox names.", schema.id, column, option)
    payload = next((c for c in schema.columns if c.name.lower() == outbox.payload.lower()), None)
    if outbox.expand and payload is not None and spark_type(payload.type) != "string":
        problem = f"outbox: {payload.name} has the type {spark_type(payload.type)}, but table.expand.json.payload needs a text column"
        raise _wrong(projection, schema, problem)


def _check_names(projection: Projection, schema: TableSchema, before: Collection[str] | None) -> None:
    """
    :param before: columns that it had, in lower case; ``None`` if they are not known
    """
    columns, there = projection.rule.columns, lower_names(schema.column_names)
    for option in ("keep", "drop", "rename", "cast"):
        for name in getattr(columns, option):
            if name.lower() in there:
                continue
            if before is not None and name.lower() not in before:
                raise _wrong(
                    projection,
                    schema,
                    f"columns.{option} names column {name!r}, which the table does not have; {suggest_names(name, schema.column_names)}",
                )
            log.warning("%s no longer has the column %s, which columns.%s of its rule names.", schema.id, name, option)
    if not projection.map_column_names(schema):
        raise _wrong(projection, schema, "it leaves out all columns of the source")


def _check_types(spark: SparkSession, projection: Projection, schema: TableSchema, *, strict: bool) -> None:
    for name, type_ in projection.rule.columns.cast.items():
        old = next((c for c in schema.columns if c.name.lower() == name.lower()), None)
        if old is None:
            continue
        empty = spark.createDataFrame([], build_struct_type({old.name: spark_type(old.type)}))
        try:
            actual_type = empty.select(F.col(quote_name(old.name)).cast(type_)).schema.fields[0].dataType.simpleString()
        except (PySparkException, ValueError) as e:
            raise _wrong(
                projection,
                schema,
                f"columns.cast.{name}: {spark_type(old.type)} cannot be cast to {type_!r}: {_short(e)}",
            ) from e
        if actual_type != type_:
            raise _wrong(projection, schema, f"columns.cast.{name}: write {type_!r} as {actual_type!r}")
    names = [*projection.map_column_types(schema), *projection.map_flag_types()]
    if twice := sorted({n for n in names if [m.lower() for m in names].count(n.lower()) > 1}):
        raise _wrong(
            projection,
            schema,
            f"the table would have two columns called {twice[0]}: rename one of them in columns.rename or columns.metadata",
        )
    if len(names) < len(projection.map_column_names(schema)) + len(projection.computed) + len(
        projection.constants
    ) + len(projection.rule.metadata_columns) + len(projection.map_flag_types()):
        news = list(projection.map_column_names(schema).values())
        both = [
            n
            for n in news
            if n in (*projection.computed, *projection.constants, *projection.rule.metadata_columns)
            or news.count(n) > 1
        ]
        raise _wrong(
            projection,
            schema,
            f"the table would have two columns called {both[0]}: rename one of them in columns.rename or columns.metadata",
        )
    for option in ("partition_by", "cluster_by"):
        for layout in getattr(projection.rule, option):
            name = laid_out_by(layout)
            # the source may have dropped it since the table was laid out
            if strict and name.lower() not in lower_names(names):
                raise _wrong(
                    projection,
                    schema,
                    f"{option} names column {name!r}, which the table will not have; {suggest_names(name, names)}",
                )


def _check_key(projection: Projection, schema: TableSchema) -> None:
    mode, names = projection.mode, projection.map_column_names(schema)
    if mode == "log":
        return
    for name in schema.key:
        if name not in names:
            raise _wrong(
                projection, schema, f"column {name} is part of the key, so it cannot be left out in mode {mode}"
            )
        old, new = spark_type(schema.get_column(name).type), projection.map_column_types(schema)[names[name]]
        if not (can_hold_type(new, old) or (new == "string" and old not in ("float", "double", "binary"))):
            raise _wrong(
                projection, schema, f"column {name} is part of the key: as {new}, different keys could become equal"
            )
    if not schema.key and (mode != "current" or projection.shard_column or projection.rule.metadata_columns):
        subject = (
            f"mode {mode}"
            if mode != "current"
            else "a shared table"
            if projection.shard_column
            else "a column of columns.metadata"
        )
        raise _wrong(
            projection,
            schema,
            f"{subject} needs a key, but the table has none: set one with message.key.columns, or use mode log",
        )


def _computed(
    spark: SparkSession, projection: Projection, schema: TableSchema, option: str, sql: str
) -> RuleExpression:
    """Build a column that a SQL expression makes."""
    expression = _analyzed(spark, projection, schema, option, sql)
    try:
        type_ = T.DataType.fromDDL(expression.type)
    except PySparkException as e:
        problem = f"{option} has the type {expression.type} with unusual field names: use only letters, digits and _ in the names of fields"
        raise _wrong(projection, schema, problem) from e
    if odd := next((part for part in parts_of(type_) if not is_storable_type(part)), None):
        of = "" if odd is type_ else f" ({expression.type})"
        raise _wrong(
            projection,
            schema,
            f"{option} has the type {odd.simpleString()}{of}, which tables do not support: cast it to another type",
        )
    return expression


def _analyzed(
    spark: SparkSession, projection: Projection, schema: TableSchema, option: str, sql: str
) -> RuleExpression:
    """Analyze a SQL expression over the columns of the source.

    In mode ``log`` it may also use the columns that its tables have about events.
    """
    types: dict[str, Any] = {c.name: spark_type(c.type) for c in schema.columns}
    empty = spark.createDataFrame([], build_struct_type(types))
    try:
        if any(
            name.startswith("UnresolvedStar")
            for name in _nodes(spark._jsparkSession.sessionState().sqlParser().parseExpression(sql))
        ):
            problem = f"{option}: {sql!r} has *, which would include columns of the job and columns that the source adds later: name the columns"
            raise _wrong(projection, schema, problem)
        selected = empty.select(F.expr(sql).alias("v"))
        plan = selected._jdf.queryExecution().analyzed()
        expression = plan.expressions().head()
        # an aggregate, or a generator of rows, would have got another plan
        rows = empty.where(F.expr(sql).isNotNull()) if plan.nodeName() == "Project" else None
        if rows is None:
            raise _wrong(projection, schema, f"{option}: {sql!r} is not an expression over one row")
        if getattr(spark._jvm, _SUBQUERIES).hasSubquery(expression):
            problem = f"{option}: {sql!r} has a subquery: its result for a row could change with another table, and the apply would not notice"
            raise _wrong(projection, schema, problem)
        needs = expression.references().toSeq()
        column_names = frozenset(needs.apply(i).name() for i in range(needs.size()))
        if not expression.deterministic() or _TODAY.search(sql) or _NOW & {n.lower() for n in _functions(expression)}:
            raise _wrong(
                projection,
                schema,
                f"{option}: {sql!r} has a different result each time, so that a repeated run would build a different table",
            )
        return RuleExpression(sql, selected.schema.fields[0].dataType.simpleString(), column_names)
    except PySparkException as e:
        if find_error_condition(e) in (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION",
        ):
            name = str((e.getMessageParameters() or {}).get("objectName", "")).strip("`").rpartition("`.`")[2]
            raise _wrong(
                projection,
                schema,
                f"{option} names column {name!r}, which the table does not have; {suggest_names(name, schema.column_names)}",
            ) from e
        raise _wrong(projection, schema, f"{option}: {sql!r} cannot be used: {_short(e)}") from e


_SUBQUERIES = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
_TODAY = re.compile(r"\b(date|timestamp(_ltz|_ntz)?)\s*r?['\"]\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""A literal of the present time: Spark makes it a constant before it can be checked."""
_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)\b.*", re.IGNORECASE | re.DOTALL)
"""Texts that are the present time when they are cast to a time."""
_NOW = frozenset(
    {
        "current_timestamp",
        "current_date",
        "now",
        "localtimestamp",
        "current_time",
        "current_user",
        "session_user",
        "user",
        "current_timestamp()",
    }
)


def _functions(expression: Any) -> Iterable[str]:
    """Names of the functions of an expression."""
    yield str(expression.prettyName())
    children = expression.children()
    if expression.prettyName() == "cast" and expression.dataType().simpleString().startswith(("date", "timestamp")):
        text = children.apply(0)
        if text.getClass().getSimpleName() == "Literal" and _MOMENT.fullmatch(str(text)):
            yield "now"
    for i in range(children.size()):
        yield from _functions(children.apply(i))


def _nodes(expression: Any) -> Iterable[str]:
    """Names of the classes that an expression is made of."""
    yield str(expression.getClass().getSimpleName())
    children = expression.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _wrong(projection: Projection, schema: TableSchema, problem: str) -> ConfigError:
    return ConfigError(
        f"The rule for {', '.join(projection.rule.tables)} does not fit {schema.id}: {problem}.",
        safe="No table was changed.",
        remedy="correct the rule; rules are checked in their order, so a rule for this table alone can precede it",
    )


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:300]
