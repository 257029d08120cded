"""Texts of errors of the JVM: the first cause is in them, such as a host that has no address."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.jvm_errors import describe_causes


def _caught(call: Any) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error of the JVM
        call()
    return caught.value


def test_an_error_of_the_jvm_is_described_by_its_first_cause(spark: SparkSession) -> None:
    java: Any = spark._jvm.java  # type: ignore[union-attr]
    host = java.net.UnknownHostException("lake.example.org")
    middle = java.io.IOException("the log cannot be read\nat all", host)
    error = _caught(java.util.concurrent.CompletableFuture.failedFuture(middle).get)
    assert describe_causes(error) == (
        "java.util.concurrent.ExecutionException: java.io.IOException: the log cannot be read, caused by "
        "java.net.UnknownHostException: lake.example.org"
    )
    error = _caught(java.util.concurrent.CompletableFuture.failedFuture(host).get)
    assert (
        describe_causes(error)
        == "java.util.concurrent.ExecutionException: java.net.UnknownHostException: lake.example.org"
    )


def test_an_error_of_python_is_described_by_its_first_line() -> None:
    assert describe_causes(ValueError("  one\ntwo")) == "one"
    assert describe_causes(ValueError()) == "ValueError"
