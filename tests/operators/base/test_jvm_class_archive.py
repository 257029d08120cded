"""The archive of classes, with a real JVM: made by one job, used by the next one, refused when it does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_cdc.operators.base.jvm_class_archive import ClassArchive
from dev.bootstrap.jars import ensure

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]
JOB = """
from airflow_provider_cdc.targets.lake.session.spark_session import open_spark_session
from airflow_provider_cdc.targets.lake.formats import load_format
spark = open_spark_session("start", load_format("delta"))
print("rows:", spark.range(7).count())
spark.stop()
"""
SUBMIT = Path(sys.executable).with_name("spark-submit")


def _run(folder: Path, options: list[str]) -> tuple[str, float]:
    """Run a job that only begins; return its output and the CPU seconds that it took."""
    from tests.targets.lake.lake import spark_environment

    (folder / "job.py").write_text(JOB)
    command = [
        SUBMIT, "--master", "local[1]", "--conf", "spark.ui.enabled=false", "--jars", ",".join(map(str, ensure("delta"))),
        "--conf", f"spark.driver.extraJavaOptions={' '.join(options)}", folder / "job.py",
    ]  # fmt: skip
    with (folder / "said").open("wb") as said:
        job = subprocess.Popen(
            list(map(str, command)),
            stdout=said,
            stderr=said,
            env={**spark_environment(), "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        _, status, used = os.wait4(job.pid, 0)
    job.returncode = os.waitstatus_to_exitcode(status)
    text = (folder / "said").read_text()
    assert job.returncode == 0, text
    assert "rows: 7" in text
    return text, used.ru_utime + used.ru_stime


def test_a_job_starts_from_the_classes_of_an_earlier_one_and_not_from_those_of_another_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _, plain = _run(tmp_path, [])
    first = ClassArchive(str(SUBMIT))
    text, _ = _run(tmp_path, first.build_jvm_options(make=True))
    assert "cds" not in text
    first.store_new_archive()
    (archive,) = (tmp_path / "cache" / "airflow-provider-cdc").iterdir()
    text, sooner = _run(tmp_path, ClassArchive(str(SUBMIT)).build_jvm_options(make=True))
    print(f"CPU: {plain:.1f} s, from an archive {sooner:.1f} s")
    assert sooner < 0.8 * plain
    # it is named as if it were that of another class path
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", str(ensure("delta")[0]))
    other = ClassArchive(str(SUBMIT))
    assert "AtExit" in other.build_jvm_options(make=True)[0]
    archive.rename(other._archive)
    _run(tmp_path, other.build_jvm_options(make=True))
