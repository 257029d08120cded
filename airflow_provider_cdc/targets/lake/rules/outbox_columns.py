"""The tables of an outbox: the meaning of a rule with ``outbox`` for columns.

Events are only added. Their columns are ``id``, ``key``, ``type``, ``payload``, ``timestamp`` and the additional ones, and those of mode ``log``.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.row_routing_rules import Outbox
from airflow_provider_cdc.core.config.target_column_rules import ColumnRules
from airflow_provider_cdc.core.config.target_table_rules import TableRule
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.rules.projection import RuleExpression
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, spark_type

FIELDS = "payload_fields"
"""Column with the members of a payload that is a JSON object: name → text, of a nested value its JSON."""
_MAP = "map<string,string>"


def of_an_outbox(rule: TableRule, schema: TableSchema) -> TableRule:
    """Return the rule with the mode and the columns that an outbox has.

    Columns that the table does not have any more are not among them.
    """
    assert rule.outbox is not None
    keep, rename = list[str](), dict[str, str]()
    for column, alias in _find_columns(rule.outbox, schema):
        if column not in keep:
            keep.append(column)
            rename[column] = alias
    metadata = {} if rule.outbox.timestamp else {"timestamp": "commit_ts"}
    columns = ColumnRules(keep=tuple(keep), rename=rename, metadata=metadata)
    return rule.model_copy(update={"mode": "log", "columns": columns})


def payload_fields(outbox: Outbox, schema: TableSchema) -> dict[str, RuleExpression]:
    """Columns that are no column of the outbox alone: those named twice, and the payload's members."""
    fields, used = dict[str, RuleExpression](), set[str]()
    for column, alias in _find_columns(outbox, schema):
        if column in used:
            type_ = spark_type(schema.get_column(column).type)
            again = partial(F.col, quote_name(column))
            fields[alias] = RuleExpression(quote_name(column), type_, frozenset({column}), factory=again)
        used.add(column)
    payload = next((c.name for c in schema.columns if c.name.lower() == outbox.payload.lower()), None)
    if outbox.expand and payload is not None:
        fields[FIELDS] = RuleExpression(
            f"from_json({quote_name(payload)}, '{_MAP}')",
            _MAP,
            frozenset({payload}),
            factory=lambda: F.from_json(F.col(quote_name(payload)), _MAP),
        )
    return fields


def _find_columns(outbox: Outbox, schema: TableSchema) -> list[tuple[str, str]]:
    """Column as the table spells it, and its alias."""
    there = {name.lower(): name for name in schema.column_names}
    return [(there[c.lower()], alias) for _, c, alias in outbox.list_columns(schema.column_names) if c.lower() in there]
