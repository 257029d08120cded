"""Columns of Iceberg tables: types, and changes of a table's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import load_jvm_class
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type, is_known_type

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Names by which readers ask for the metadata of a row; a table with such a column can be written, and not be read."""


def to_iceberg_type(type_: str) -> str:
    """Return the Spark type that a table has for another one: Iceberg's smallest integer has 32 bits.

    >>> to_iceberg_type("tinyint"), to_iceberg_type("date")
    ('int', 'date')
    """
    return "int" if type_ in ("tinyint", "smallint") else type_


def can_widen_type(old: str, new: str) -> bool:
    """Check whether a column's type can be changed without a rewrite of its values.

    >>> can_widen_type("int", "bigint"), can_widen_type("decimal(5,2)", "decimal(9,2)"), can_widen_type("int", "double")
    (True, True, False)
    """
    if (old, new) in {("int", "bigint"), ("float", "double")}:
        return True
    a, b = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    return bool(a and b and a[2] == b[2] and int(a[1]) < int(b[1]))


def build_iceberg_schema(spark: SparkSession, types: Mapping[str, str]) -> Any:
    """Columns and their Spark types as a schema of Iceberg (``org.apache.iceberg.Schema``); all may be NULL."""
    struct = spark._jsparkSession.parseDataType(
        build_struct_type({name: to_iceberg_type(t) for name, t in types.items()}).json()
    )
    return load_jvm_class(spark, f"{ICEBERG}.spark.SparkSchemaUtil").convert(struct)


def check_types(types: Mapping[str, str]) -> None:
    """Check the types of columns.

    :param types: columns and their Spark types
    :raises ConfigError: tables have no columns of one of these types
    """
    if odd := [(name, type_) for name, type_ in types.items() if not is_known_type(to_iceberg_type(type_))]:
        name, type_ = odd[0]
        raise ConfigError(
            f"Column {name} would have the type {type_}, which is not supported for Iceberg tables.",
            safe="No table was changed.",
            remedy="convert it to text in the rule, for example with to_json(…), or define a column for each of its parts",
        )


def format_of(types: Mapping[str, str]) -> str:
    """Return the version of Iceberg's format that a table with columns of some Spark types has.

    Variants are of the third.

    >>> format_of({"id": "int"}), format_of({"v": "variant"})
    ('2', '3')
    """
    return "3" if "variant" in types.values() else "2"


def spark_types_from_schema(spark: SparkSession, schema: Any) -> dict[str, str]:
    """Column → Spark type, of a schema of Iceberg."""
    struct = load_jvm_class(spark, f"{ICEBERG}.spark.SparkSchemaUtil").convert(schema)
    return {f.name: f.dataType.simpleString() for f in StructType.fromJson(json.loads(struct.json())).fields}


def iceberg_types(spark: SparkSession, types: Mapping[str, str]) -> dict[str, Any]:
    """Column → type of Iceberg (``org.apache.iceberg.types.Type``)."""
    return {field.name(): field.type() for field in build_iceberg_schema(spark, types).columns()}


def rearrange_columns(spark: SparkSession, table: Any, types: Mapping[str, str]) -> None:
    """Make these a table's columns, in this order.

    Those that are there and can hold the new values keep their identity, and the partitions by them.

    :param table: whose rows are replaced within the same transaction
    """
    there, new = (
        spark_types_from_schema(spark, table.schema()),
        {name: to_iceberg_type(type_) for name, type_ in types.items()},
    )
    names = {name.lower(): name for name in there}
    stays = {
        name: names[name.lower()]
        for name, type_ in new.items()
        if name.lower() in names
        and (there[names[name.lower()]] == type_ or can_widen_type(there[names[name.lower()]], type_))
    }
    if list(there.items()) == list(new.items()) and all(field.isOptional() for field in table.schema().columns()):
        return
    gone = [name for name in there if name not in stays.values()]
    _forget(table, {table.schema().findField(name).fieldId() for name in gone})
    update = table.updateSchema()
    update.setIdentifierFields(load_jvm_class(spark, "java.util.ArrayList")())
    for name in gone:
        update.deleteColumn(name)
    update.commit()
    update, new_types = table.updateSchema(), iceberg_types(spark, new)
    for name, type_ in new.items():
        if name not in stays:
            update.addColumn(None, name, new_types[name])
            continue
        old = stays[name]
        update.makeColumnOptional(old)
        if there[old] != type_:
            update.updateColumn(old, new_types[name])
        if old != name:
            update.renameColumn(old, name)
    update.commit()
    update, before = table.updateSchema(), ""
    for name in new:
        if before:
            update.moveAfter(name, before)
        else:
            update.moveFirst(name)
        before = name
    update.commit()


def was_partitioned_by_a_column_that_is_gone(table: Any) -> bool:
    """Check whether older files have partitions by a column that the table does not have any more."""
    schema = table.schema()
    fields = [field for spec in table.specs().values() for field in spec.fields()]
    return any(schema.findField(field.sourceId()) is None for field in fields)


def lays_out(table: Any, names: Iterable[str]) -> bool:
    """Check whether the table is partitioned or sorted by one of some columns."""
    ids = {table.schema().findField(name).fieldId() for name in names}
    return any(field.sourceId() in ids for field in [*table.spec().fields(), *table.sortOrder().fields()])


def _forget(table: Any, ids: set[int]) -> None:
    """Partition no longer by columns that go, and do not sort by them."""
    fields = [field.name() for field in table.spec().fields() if field.sourceId() in ids]
    if fields:
        update = table.updateSpec()
        for name in fields:
            update.removeField(name)
        update.commit()
    if any(field.sourceId() in ids for field in table.sortOrder().fields()):
        table.replaceSortOrder().commit()


_TRANSFORM = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*\)")
_TIMES = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


def parse_transform(text: str) -> tuple[str, tuple[int, ...], str]:
    """Parse how rows are partitioned by a column.

    Return Iceberg's name for it, its number if it has one, and the column.

    >>> parse_transform("bucket(16, id)"), parse_transform("country")
    (('bucket', (16,), 'id'), ('identity', (), 'country'))

    :raises ConfigError: it is not a transform
    """
    match = _TRANSFORM.fullmatch(text)
    if match is None:
        return "identity", (), text
    name, number, column = match[1].lower(), match[2], match[3]
    if name in (*_TIMES, *_TIMES.values()) and number is None:
        return _TIMES.get(name, name), (), column
    if name in ("bucket", "truncate") and number is not None:
        return name, (int(number),), column
    raise ConfigError(
        f"partition_by: {text!r} is not a transform. Valid transforms are: {', '.join(f'{t}(column)' for t in _TIMES)}, "
        "bucket(number, column), truncate(number, column).",
        safe="No table was changed.",
        remedy="correct the rule",
    )


def lay_out(spark: SparkSession, table: Any, partition_by: Sequence[str], cluster_by: Sequence[str]) -> None:
    """Partition a table that has no rows yet, and sort its rows; see :func:`parse_transform`."""
    expressions = load_jvm_class(spark, f"{ICEBERG}.expressions.Expressions")
    if partition_by:
        update = table.updateSpec()
        for text in partition_by:
            name, number, column = parse_transform(text)
            if name == "identity":
                update.addField(column)
            else:
                update.addField(getattr(expressions, name)(column, *number))
        update.commit()
    if cluster_by:
        order, first = table.replaceSortOrder(), load_jvm_class(spark, f"{ICEBERG}.NullOrder").NULLS_FIRST
        for column in cluster_by:
            order.asc(expressions.ref(column), first)
        order.commit()


def find_missing_comments(spark: SparkSession, table: Any, comments: Mapping[str, str]) -> dict[str, str]:
    """Column → its comment, of those that the table does not have so.

    :param comments: by names as Spark compares them
    """
    fields = json.loads(load_jvm_class(spark, f"{ICEBERG}.SchemaParser").toJson(table.schema()))["fields"]
    there = {field["name"].lower(): (field["name"], field.get("doc", "")) for field in fields}
    return {
        there[name.lower()][0]: text
        for name, text in comments.items()
        if name.lower() in there and there[name.lower()][1] != text
    }
