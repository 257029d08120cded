"""Files of ``deploy/``: what they name exists. No image is built here, and no cluster is asked."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from airflow_provider_cdc.targets.lake.spark_releases.release_packages import (
    S3_EXCLUDED,
    find_packages,
    find_s3_packages,
)
from dev import paths

DEPLOY = paths.ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PROJECT = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text())


@pytest.fixture(scope="module")
def fetch_jars() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_jars", DEPLOY / "fetch_jars.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_image_has_an_airflow_and_a_python_that_are_supported() -> None:
    image = re.search(r"AIRFLOW_IMAGE=apache/airflow:([\d.]+)-python([\d.]+)$", DOCKERFILE, re.M)
    assert image is not None
    (airflow,) = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "apache-airflow"]
    assert image[1] in airflow.specifier
    assert image[2] in SpecifierSet(PROJECT["requires-python"])
    assert VALUES["airflowVersion"] == image[1]


def test_the_extras_of_the_image_exist() -> None:
    extras = re.search(r"^ARG CDC_EXTRAS=(.*)$", DOCKERFILE, re.M)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])


def test_files_that_the_image_copies_exist_and_the_wheel_has_its_name() -> None:
    copied = [
        word for line in re.findall(r"^COPY --chown=\S+ (.*) /opt/cdc/$", DOCKERFILE, re.M) for word in line.split()
    ]
    wheel = [name for name in copied if name.startswith("dist/")]
    assert wheel == [f"dist/{PROJECT['name'].replace('-', '_')}-*.whl"]
    assert [name for name in copied if name not in wheel and not (paths.ROOT / name).exists()] == []
    assert len(copied) == 3


def test_spark_and_the_workers_use_the_folders_of_the_image() -> None:
    folders = set(re.findall(r"/opt/cdc/\w+(?!\.\w)\b", DOCKERFILE))
    assert {"/opt/cdc/ivy", "/opt/cdc/numba"} <= folders
    assert "spark.jars.ivy /opt/cdc/ivy" in (DEPLOY / "spark-defaults.conf").read_text().splitlines()
    cache = re.search(r"NUMBA_CACHE_DIR=(\S+)", DOCKERFILE)
    assert cache is not None
    (mount,) = VALUES["workers"]["extraVolumeMounts"]
    (volume,) = VALUES["workers"]["extraVolumes"]
    claim = yaml.safe_load((DEPLOY / "kernel-cache.yaml").read_text())
    assert (mount["mountPath"], mount["name"]) == (cache[1], volume["name"])
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_the_settings_of_the_values_exist() -> None:
    from airflow_provider_cdc.get_provider_info import get_provider_info

    options = get_provider_info()["config"]["cdc"]["options"]
    named = [entry["name"] for entry in VALUES["env"] if entry["name"].startswith("AIRFLOW__CDC__")]
    assert named
    assert [name for name in named if name.removeprefix("AIRFLOW__CDC__").lower() not in options] == []


def test_the_image_fetches_the_packages_that_operators_ask_for(fetch_jars: ModuleType) -> None:
    assert fetch_jars.list_resolutions(["delta"], s3=True) == [
        find_packages("delta"),
        (*find_packages("delta"), *find_s3_packages()),
    ]
    command = fetch_jars.build_command(paths.ROOT, find_packages("iceberg"), paths.ROOT / "empty.py")
    assert command[command.index("--packages") + 1] == ",".join(find_packages("iceberg"))
    assert f"spark.jars.excludes={S3_EXCLUDED}" in command


def test_arguments_of_the_image_are_taken_by_the_script(
    fetch_jars: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = re.search(r"^RUN python /opt/cdc/(fetch_jars\.py .*)$", DOCKERFILE, re.M)
    assert call is not None
    run: list[list[str]] = []
    monkeypatch.setattr("sys.argv", call[1].split())
    monkeypatch.setattr(fetch_jars.subprocess, "run", lambda command, check: run.append(command))
    assert fetch_jars.main() == 0
    assert len(run) == 2
    assert all("spark.jars.ivy=/opt/cdc/ivy" in command for command in run)
