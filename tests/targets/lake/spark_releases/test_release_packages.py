"""Packages of the table formats by release of Spark."""

import tomllib

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.spark_releases import release_packages
from airflow_provider_cdc.targets.lake.spark_releases.release_packages import PACKAGES, find_packages, find_s3_packages
from dev import paths
from dev.bootstrap import jars


@pytest.mark.parametrize("release", PACKAGES)
def test_tests_run_with_the_packages_that_jobs_ask_for(release: str) -> None:
    for kind, packages in PACKAGES[release].items():
        pinned = {jar.coordinates for jar in jars.list_jars(kind, spark=release)}
        assert set(packages) <= pinned, kind


def test_the_lock_has_the_newest_release() -> None:
    locked = tomllib.loads((paths.ROOT / "uv.lock").read_text())["package"]
    (version,) = [package["version"] for package in locked if package["name"] == "pyspark"]
    assert release_packages.parse_release(version) == release_packages.NEWEST == jars.LOCKED_SPARK


def test_packages_follow_the_installed_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_packages, "version", lambda name: {"pyspark": "4.0.9"}[name])
    assert find_packages("delta") == PACKAGES["4.0"]["delta"]
    assert find_packages("memory") == ()
    assert find_packages("iceberg", "3.5.1") == PACKAGES["3.5"]["iceberg"]


def test_without_pyspark_the_packages_are_those_of_the_newest_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise release_packages.PackageNotFoundError(name)

    monkeypatch.setattr(release_packages, "version", version)
    assert find_packages("delta") == PACKAGES["4.1"]["delta"]


def test_a_release_without_known_packages_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_packages, "version", lambda name: "4.2.0")
    with pytest.raises(
        ConfigError, match=r"(?s)for Spark 4\.2\. Known releases of Spark are: 3\.5, 4\.0, 4\.1.*spark_version"
    ):
        find_packages("delta")


def test_tests_run_with_the_packages_of_s3_that_jobs_ask_for() -> None:
    assert set(find_s3_packages(release_packages.NEWEST)) <= {jar.coordinates for jar in jars.list_jars("s3")}
