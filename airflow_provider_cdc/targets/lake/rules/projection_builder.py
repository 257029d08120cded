"""Makes the shape of a source table from its rule, and checks what the rule says against the table: names of columns, types, SQL, the key."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.core.config.name_suggestions import suggest_names
from airflow_provider_cdc.core.config.target_table_rules import PLAIN, MatchedRule
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableSchema
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
        return replace(WHOLE, documents=schema.variant_column) if schema.variant_column else WHOLE
    table = schema.id
    places = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
    constants = matched.build_constants(connector, topic, table)
    if rule.outbox is not None:
        _check_outbox(Projection(rule), schema, strict=strict)
        rule = of_an_outbox(rule, schema)
    found = Projection(rule, constants, places)
    _check_names(found, schema, lower_names(before) if strict else None)
    computed = {
        name: _computed(spark, found, schema, f"columns.computed.{name}", sql)
        for name, sql in rule.columns.computed.items()
    }
    if rule.outbox is not None:
        computed |= payload_fields(rule.outbox, schema)
    where: RowCondition | None = _condition(spark, found, schema, "filter", rule.filter)
    if place is not None:
        going = build_routing(spark, matched, schema)
        where = RouteCondition(going, place, where)
    recorded = {} if place is None else place.describe_meaning(rule)
    made = Projection(rule, constants, places, computed, where, recorded, documents=schema.variant_column)
    _check_types(spark, made, schema, strict=strict)
    _check_key(made, schema)
    return made


def build_routing(spark: SparkSession, matched: MatchedRule, schema: TableSchema) -> CheckedRoute:
    """Build the route of a rule that has one, checked against a source table.

    :raises ConfigError: the route does not fit the table
    """
    rule, found = matched.rule, Projection(matched.rule)
    if rule.outbox is not None:
        return CheckedRoute((CheckedRouteStep(None, _by_column(found, schema, rule.outbox.by)),))
    steps = []
    for number, step in enumerate(rule.route, start=1):
        when = _condition(spark, found, schema, f"route: step {number}: when", step.when)
        by = None if step.by is None else _analyzed(spark, found, schema, f"route: step {number}: by", step.by)
        if by is not None and by.type.startswith(_NO_TEXTS):
            raise _wrong(
                found, schema, f"route: step {number}: by has the type {by.type}, which cannot be used as text"
            )
        steps.append(CheckedRouteStep(when, by))
    return CheckedRoute(tuple(steps))


_NO_TEXTS = ("array", "map", "struct", "binary", "variant", "void")
"""Types whose values cannot be part of a location."""


def _condition(
    spark: SparkSession, made: Projection, schema: TableSchema, what: str, sql: str | None
) -> RuleExpression | None:
    if sql is None:
        return None
    found = _analyzed(spark, made, schema, what, sql)
    if found.type != "boolean":
        raise _wrong(made, schema, f"{what} has the type {found.type}, but must be a condition")
    return found


def _by_column(made: Projection, schema: TableSchema, given: str) -> RuleExpression:
    """Build the column of ``route.by.field``; its name is no SQL."""
    name = next((c.name for c in schema.columns if c.name.lower() == given.lower()), None)
    if name is None:
        said = f"outbox: route.by.field names column {given!r}, which the table does not have"
        raise _wrong(made, schema, f"{said}; {suggest_names(given, schema.column_names)}")
    type_ = spark_type(schema.get_column(name).type)
    if type_.startswith(_NO_TEXTS):
        raise _wrong(made, schema, f"outbox: route.by.field {name} has the type {type_}, which cannot be used as text")
    return RuleExpression(quote_name(name), type_, frozenset({name}), made=lambda: F.col(quote_name(name)))


def _check_outbox(made: Projection, schema: TableSchema, *, strict: bool) -> None:
    outbox, there = made.rule.outbox, lower_names(schema.column_names)
    assert outbox is not None
    for what, column, _ in outbox.list_columns(schema.column_names):
        if column.lower() in there:
            continue
        if strict:
            said = f"outbox: {what} names column {column!r}, which the table does not have"
            raise _wrong(made, schema, f"{said}; {suggest_names(column, schema.column_names)}")
        log.warning("%s no longer has the column %s, which %s of its outbox names.", schema.id, column, what)
    payload = next((c for c in schema.columns if c.name.lower() == outbox.payload.lower()), None)
    if outbox.expand and payload is not None and spark_type(payload.type) != "string":
        said = f"outbox: {payload.name} has the type {spark_type(payload.type)}, but table.expand.json.payload needs a text column"
        raise _wrong(made, schema, said)


def _check_names(made: Projection, schema: TableSchema, before: Collection[str] | None) -> None:
    """
    :param before: columns that it had, in lower case; ``None`` if they are not known
    """
    columns, there = made.rule.columns, lower_names(schema.column_names)
    for what in ("keep", "drop", "rename", "cast"):
        for name in getattr(columns, what):
            if name.lower() in there:
                continue
            if before is not None and name.lower() not in before:
                raise _wrong(
                    made,
                    schema,
                    f"columns.{what} names column {name!r}, which the table does not have; {suggest_names(name, schema.column_names)}",
                )
            log.warning("%s no longer has the column %s, which columns.%s of its rule names.", schema.id, name, what)
    if not made.map_column_names(schema):
        raise _wrong(made, schema, "it leaves out all columns of the source")


def _check_types(spark: SparkSession, made: Projection, schema: TableSchema, *, strict: bool) -> None:
    for name, type_ in made.rule.columns.cast.items():
        old = next((c for c in schema.columns if c.name.lower() == name.lower()), None)
        if old is None:
            continue
        empty = spark.createDataFrame([], build_struct_type({old.name: spark_type(old.type)}))
        try:
            got = empty.select(F.col(quote_name(old.name)).cast(type_)).schema.fields[0].dataType.simpleString()
        except (PySparkException, ValueError) as e:
            raise _wrong(
                made, schema, f"columns.cast.{name}: {spark_type(old.type)} cannot be cast to {type_!r}: {_short(e)}"
            ) from e
        if got != type_:
            raise _wrong(made, schema, f"columns.cast.{name}: write {type_!r} as {got!r}")
    names = [*made.map_column_types(schema), *made.map_flag_types()]
    if twice := sorted({n for n in names if [m.lower() for m in names].count(n.lower()) > 1}):
        raise _wrong(
            made,
            schema,
            f"the table would have two columns called {twice[0]}: rename one of them in columns.rename or columns.metadata",
        )
    if len(names) < len(made.map_column_names(schema)) + len(made.computed) + len(made.constants) + len(
        made.rule.metadata_columns
    ) + len(made.map_flag_types()):
        news = list(made.map_column_names(schema).values())
        both = [
            n for n in news if n in (*made.computed, *made.constants, *made.rule.metadata_columns) or news.count(n) > 1
        ]
        raise _wrong(
            made,
            schema,
            f"the table would have two columns called {both[0]}: rename one of them in columns.rename or columns.metadata",
        )
    for what in ("partition_by", "cluster_by"):
        for given in getattr(made.rule, what):
            name = laid_out_by(given)
            # the source may have dropped it since the table was laid out
            if strict and name.lower() not in lower_names(names):
                raise _wrong(
                    made,
                    schema,
                    f"{what} names column {name!r}, which the table will not have; {suggest_names(name, names)}",
                )


def _check_key(made: Projection, schema: TableSchema) -> None:
    mode, names = made.mode, made.map_column_names(schema)
    if mode == "log":
        return
    for name in schema.key:
        if name not in names:
            raise _wrong(made, schema, f"column {name} is part of the key, so it cannot be left out in mode {mode}")
        old, new = spark_type(schema.get_column(name).type), made.map_column_types(schema)[names[name]]
        if not (can_hold_type(new, old) or (new == "string" and old not in ("float", "double", "binary"))):
            raise _wrong(made, schema, f"column {name} is part of the key: as {new}, different keys could become equal")
    if not schema.key and (mode != "current" or made.shard_column or made.rule.metadata_columns):
        what = (
            f"mode {mode}"
            if mode != "current"
            else "a shared table"
            if made.shard_column
            else "a column of columns.metadata"
        )
        raise _wrong(
            made,
            schema,
            f"{what} needs a key, but the table has none: set one with message.key.columns, or use mode log",
        )


def _computed(spark: SparkSession, made: Projection, schema: TableSchema, what: str, sql: str) -> RuleExpression:
    """Build a column that a SQL expression makes."""
    found = _analyzed(spark, made, schema, what, sql)
    try:
        type_ = T.DataType.fromDDL(found.type)
    except PySparkException as e:
        said = f"{what} has the type {found.type} with unusual field names: use only letters, digits and _ in the names of fields"
        raise _wrong(made, schema, said) from e
    if odd := next((part for part in parts_of(type_) if not is_storable_type(part)), None):
        of = "" if odd is type_ else f" ({found.type})"
        raise _wrong(
            made,
            schema,
            f"{what} has the type {odd.simpleString()}{of}, which tables do not support: cast it to another type",
        )
    return found


def _analyzed(spark: SparkSession, made: Projection, schema: TableSchema, what: str, sql: str) -> RuleExpression:
    """Analyze a SQL expression over the columns of the source.

    In mode ``log`` it is also over what its tables have about events.
    """
    types: dict[str, Any] = {c.name: spark_type(c.type) for c in schema.columns}
    empty = spark.createDataFrame([], build_struct_type(types))
    try:
        if any(
            name.startswith("UnresolvedStar")
            for name in _nodes(spark._jsparkSession.sessionState().sqlParser().parseExpression(sql))
        ):
            said = f"{what}: {sql!r} has *, which would include columns of the job and columns that the source adds later: name the columns"
            raise _wrong(made, schema, said)
        selected = empty.select(F.expr(sql).alias("v"))
        plan = selected._jdf.queryExecution().analyzed()
        expression = plan.expressions().head()
        # an aggregate, and what makes rows, would have got another plan
        rows = empty.where(F.expr(sql).isNotNull()) if plan.nodeName() == "Project" else None
        if rows is None:
            raise _wrong(made, schema, f"{what}: {sql!r} is not an expression over one row")
        if getattr(spark._jvm, _SUBQUERIES).hasSubquery(expression):
            said = f"{what}: {sql!r} has a subquery: its result for a row could change with another table, and the apply would not notice"
            raise _wrong(made, schema, said)
        needs = expression.references().toSeq()
        found = frozenset(needs.apply(i).name() for i in range(needs.size()))
        if not expression.deterministic() or _TODAY.search(sql) or _NOW & {n.lower() for n in _functions(expression)}:
            raise _wrong(
                made,
                schema,
                f"{what}: {sql!r} has a different result each time, so that a repeated run would build a different table",
            )
        return RuleExpression(sql, selected.schema.fields[0].dataType.simpleString(), found)
    except PySparkException as e:
        if getattr(e, "getCondition", lambda: "")() in (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION",
        ):
            name = str((e.getMessageParameters() or {}).get("objectName", "")).strip("`").rpartition("`.`")[2]
            raise _wrong(
                made,
                schema,
                f"{what} names column {name!r}, which the table does not have; {suggest_names(name, schema.column_names)}",
            ) from e
        raise _wrong(made, schema, f"{what}: {sql!r} cannot be used: {_short(e)}") from e


_SUBQUERIES = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
_TODAY = re.compile(r"\b(date|timestamp(_ltz|_ntz)?)\s*r?['\"]\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""A literal of the present time: Spark makes it a constant before anybody can look at it."""
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


def _wrong(made: Projection, schema: TableSchema, what: str) -> ConfigError:
    return ConfigError(
        f"The rule for {', '.join(made.rule.tables)} does not fit {schema.id}: {what}.",
        safe="No table was changed.",
        remedy="correct the rule; rules are checked in their order, so a rule for this table alone can precede it",
    )


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:300]
