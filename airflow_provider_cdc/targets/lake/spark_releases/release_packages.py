"""The Maven packages of each table format for each release of Spark; without Spark, so that Airflow can ask."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from airflow_provider_cdc.core.errors import ConfigError

_AWS_SDK = tuple(f"software.amazon.awssdk:{name}:2.29.52" for name in ("s3", "s3-transfer-manager", "sts"))
PACKAGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "3.5": {
        "delta": ("io.delta:delta-spark_2.12:3.3.3",),
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",),
    },
    "4.0": {
        "delta": ("io.delta:delta-spark_4.0_2.13:4.4.0",),
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",),
    },
    "4.1": {
        "delta": ("io.delta:delta-spark_4.1_2.13:4.4.0",),
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
    },
}
"""Release of Spark → kind of tables → Maven coordinates. The tests run with each of them (``dev/test --matrix spark``)."""
S3_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "3.5": ("org.apache.hadoop:hadoop-aws:3.3.4",),
    "4.0": ("org.apache.hadoop:hadoop-aws:3.4.1", *_AWS_SDK),
    "4.1": ("org.apache.hadoop:hadoop-aws:3.4.2", *_AWS_SDK),
}
"""Release of Spark → Maven coordinates of Hadoop's S3A, in the version of the Hadoop that this release has."""
S3_EXCLUDED = "software.amazon.awssdk:bundle"
"""A package of 640 MB that ``hadoop-aws`` asks for. S3A needs the 18 MB of :data:`S3_PACKAGES` alone."""
NEWEST = max(PACKAGES)


def find_packages(kind: str, spark_version: str = "") -> tuple[str, ...]:
    """Return the packages of a kind of tables.

    :param spark_version: release of Spark, such as ``4.0`` or ``4.0.1``; empty for that of the PySpark which is installed here, or the newest
        one if none is installed
    :raises ConfigError: there are none for this release

    >>> find_packages("delta", "4.0.1")
    ('io.delta:delta-spark_4.0_2.13:4.4.0',)
    """
    return PACKAGES[_known_release(spark_version)].get(kind, ())


def find_s3_packages(spark_version: str = "") -> tuple[str, ...]:
    """Return the packages with which Spark reads and writes ``s3a://``, without :data:`S3_EXCLUDED`.

    :param spark_version: as of :func:`find_packages`
    :raises ConfigError: there are none for this release

    >>> find_s3_packages("3.5")
    ('org.apache.hadoop:hadoop-aws:3.3.4',)
    """
    return S3_PACKAGES[_known_release(spark_version)]


def _known_release(spark_version: str) -> str:
    release = parse_release(spark_version or installed_version() or NEWEST)
    if release not in PACKAGES:
        raise ConfigError(
            f"No packages of table formats are known for Spark {release}. Known releases of Spark are: {', '.join(PACKAGES)}.",
            safe="Nothing was submitted.",
            remedy="set spark_version to the release of the cluster, or name the packages of this release with packages or jars",
        )
    return release


def known_spark_version(text: str) -> str:
    """Check a release of Spark that a user names, and return it.

    :param text: such as ``4.0``; empty for the installed one
    :raises ConfigError: the tests run with no such release
    """
    if text != "" and parse_release(str(text)) not in PACKAGES:
        raise ConfigError(f"spark_version={text!r} is not supported. Valid values are: {', '.join(PACKAGES)}.")
    return text


def parse_release(text: str) -> str:
    """Return the release of a version.

    >>> parse_release("4.1.3")
    '4.1'
    """
    return ".".join(text.split(".")[:2])


def installed_version() -> str:
    """Return the version of the installed PySpark; empty if there is none."""
    for name in ("pyspark", "pyspark-client"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
