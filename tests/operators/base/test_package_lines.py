"""The log of a Spark task: lines of packages are in it only if the job fails. The samples are those of a real ``spark-submit --packages``."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from airflow_provider_cdc.operators.base.package_lines import PackageLines
from tests.operators.test_apply_changes import Spark, apply, report
from tests.support.airflow.airflow_connector import context
from tests.support.airflow.airflow_versions import AirflowException

RESOLUTION = """:: loading settings :: url = jar:file:/opt/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /root/.ivy2/cache
The jars for the packages stored in: /root/.ivy2/jars
io.delta#delta-spark_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-1cbe091d-4247-4717-bf1b-3018e7a59831;1.0
\tconfs: [default]
\tfound io.delta#delta-spark_2.13;4.0.0 in central
downloading https://repo1.maven.org/maven2/io/delta/delta-spark_2.13/4.0.0/delta-spark_2.13-4.0.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-spark_2.13;4.0.0!delta-spark_2.13.jar (72ms)
:: resolution report :: resolve 926ms :: artifacts dl 76ms
\t:: modules in use:

:: problems summary ::
:::: WARNINGS
\tHost repos.spark-packages.org not found. url=https://repos.spark-packages.org/org/slf4j/slf4j-bom/2.0.9/slf4j-bom-2.0.9.jar
"""
FOUND = (
    RESOLUTION
    + """:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
:: retrieving :: org.apache.spark#spark-submit-parent-1cbe091d-4247-4717-bf1b-3018e7a59831
\tconfs: [default]
\t1 artifacts copied, 2 already retrieved (63kB/8ms)
"""
)
NOT_FOUND = (
    RESOLUTION
    + """\t\tmodule not found: io.delta#delta-spark_2.13;4.0.0
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: io.delta#delta-spark_2.13;4.0.0: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_2.13;4.0.0: not found]
"""
)
BEFORE, AFTER = "WARNING: Using incubator modules: jdk.incubator.vector\n", "Applying batches 1 to 7.\n"


def filter_lines(text: str) -> str:
    return "".join(PackageLines(logging.getLogger("packages")).filter_lines(text.splitlines(keepends=True)))


def test_packages_that_are_found_are_one_line_and_downloads_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (download,) = [line for line in FOUND.splitlines(keepends=True) if line.startswith("downloading")]
    summary = "Spark has found 3 packages, and copied 1 of them.\n"
    assert filter_lines(BEFORE + FOUND + AFTER) == BEFORE + download + summary + AFTER
    assert "found io.delta#delta-spark_2.13;4.0.0 in central" in caplog.text


def test_a_resolution_that_fails_or_is_cut_is_there_as_a_whole() -> None:
    for text in (BEFORE + NOT_FOUND + AFTER, BEFORE + RESOLUTION):
        assert sorted(filter_lines(text).splitlines()) == sorted(text.splitlines())
        assert filter_lines(text).splitlines()[-1] == text.splitlines()[-1]


def test_a_log_without_packages_is_as_it_was() -> None:
    assert filter_lines(BEFORE + AFTER) == BEFORE + AFTER
    assert filter_lines("") == ""


@pytest.mark.parametrize("status", [0, 1])
def test_the_task_has_these_lines_only_if_its_job_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    spark = Spark(tmp_path, monkeypatch)
    (tmp_path / "lines").write_text(BEFORE + FOUND + AFTER)
    program = tmp_path / "bin" / "spark-submit"
    lines = program.read_text().split("\n", 1)
    program.write_text(f"{lines[0]}\nprint(open({str(tmp_path / 'lines')!r}).read(), flush=True)\n{lines[1]}")
    spark.will(None if status else report(), status=status)
    task = apply(tmp_path)
    if status:
        with pytest.raises(AirflowException):
            task.execute(context())
    else:
        task.execute(context())
    shown = capsys.readouterr().out
    assert "Spark has found 3 packages, and copied 1 of them." in shown
    assert AFTER.strip() in shown
    assert (":: resolving dependencies ::" in shown) == bool(status)
