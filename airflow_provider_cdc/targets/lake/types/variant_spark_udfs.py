"""Columns of documents: Spark calls the encoder where the rows are, with Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column as Expression
from pyspark.sql import types as T

from airflow_provider_cdc.targets.lake.executors.executor_packages import ship_driver_code
from airflow_provider_cdc.targets.lake.spark_releases.python_features import VARIANT_FIELDS, VARIANT_TYPE, call_on_arrow
from airflow_provider_cdc.targets.lake.types.variant_decoder import decode_variant
from airflow_provider_cdc.targets.lake.types.variant_encoder import VariantEncoder

VARIANT = "variant"
"""The Spark type."""


def as_variant(text: Expression) -> Expression:
    """Documents as variants.

    :param text: their extended JSON
    """
    assert VARIANT_TYPE is not None, "documents are texts where Spark has no variants"
    return _called(encode_variants, VARIANT_TYPE(), text)


def as_text(variant: Expression) -> Expression:
    """Variants as texts that are equal if their values are, with the types of these."""
    return _called(decode_variants, T.StringType(), variant)


@cache
def _shipped(context: SparkContext) -> None:
    """Executors get the code once, and not for each table."""
    ship_driver_code(context)


def _called(function: Callable[[pa.Array], pa.Array], type_: T.DataType, value: Expression) -> Expression:
    context = SparkContext._active_spark_context  # threads have no active session of their own
    if context is not None:
        _shipped(context)
    return call_on_arrow(function, type_, value)


def encode_variants(texts: pa.Array) -> pa.Array:
    """Convert an array of texts to one of variants."""
    encode = VariantEncoder().encode
    variants = [(b"", b"") if text is None else encode(text) for text in texts.to_pylist()]
    values = pa.array([value for value, _ in variants], pa.binary())
    metadata = pa.array([metadata for _, metadata in variants], pa.binary())
    return pa.StructArray.from_arrays([values, metadata], fields=list(VARIANT_FIELDS), mask=texts.is_null())


def decode_variants(variants: pa.Array) -> pa.Array:
    """Convert an array of variants to one of texts."""
    texts = [
        None if variant is None else decode_variant(variant["value"], variant["metadata"])
        for variant in variants.to_pylist()
    ]
    return pa.array(texts, pa.string())
