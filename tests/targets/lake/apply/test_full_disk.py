"""A table on a disk that is full: the error has its name, the place and the command, and the next apply writes the rest."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.errors import StorageFull
from airflow_provider_cdc.targets.lake.formats.jvm_errors import full_disk_error
from tests.support.processes.small_disk import fill_disk, mount_small_disk
from tests.targets.lake.lake import Lake, new_lake

pytestmark = pytest.mark.spark


@pytest.mark.every_kind
def test_an_apply_to_a_full_disk_names_the_error_and_the_place_and_the_next_one_writes_the_rest(
    spark: SparkSession, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lake: Lake = new_lake(spark, tmp_path / "lake", kind)
    with mount_small_disk(Path(lake.location.partition("{")[0].rstrip("/")), "4m") as disk:
        db = lake.connector.database  # type: ignore[attr-defined]
        db.create_table("s.a", {"id": "int64!", "text": "string"}, key=("id",))
        with db.transaction() as t:
            t.insert("s.a", {"id": 1, "text": "small"})
        lake.connector.capture()
        lake.apply()
        filler = fill_disk(disk)
        with db.transaction() as t:
            for key in range(2, 60):
                t.insert("s.a", {"id": key, "text": os.urandom(20_000).hex()})
        lake.connector.capture()
        for writes in ("auto", "merge"):  # by the driver, and by Spark's tasks
            caplog.clear()
            with pytest.raises(Exception, match="StorageFull: No space is left on the disk with the table"):
                lake.apply(writes=writes)
            text = caplog.text
            assert "Changes could not be applied to the table of p.s.a. StorageFull" in text
            assert "Traceback" not in text
            assert "java.io" not in text
        report = ApplyReports(lake.connector.changelog.storage, "test").read(kind, lake.location)
        assert report is not None
        failure = report["failed"]["p.s.a"]
        assert failure.startswith("StorageFull: ")
        assert lake.path("s.a") in failure
        assert "airflow cdc maintain test" in failure
        filler.unlink()
        assert {one.topic: one.rows for one in lake.apply().tables} == {"p.s.a": {"c": 58}}


def test_a_full_disk_of_sparks_temporary_files_is_another_place(spark: SparkSession) -> None:
    def fails(text: str) -> StorageFull | None:
        return full_disk_error(RuntimeError(text), "shop", "/lake/orders")

    stack = "java.io.IOException: No space left on device\n\tat org.apache.spark.storage.DiskBlockObjectWriter.write"
    error = fails(stack)
    assert error is not None
    assert "spark.local.dir" in error.message
    assert fails("java.io.IOException: Permission denied") is None
