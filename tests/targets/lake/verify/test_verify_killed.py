"""``airflow cdc verify`` in separate processes, killed while it reads, waits and compares; two at once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dev.bootstrap.jars import ensure
from tests.crash.test_verification import belongings
from tests.support.patience import LONGEST_S
from tests.targets.lake.followed_mariadb import FollowedMariaDb

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]
COMMAND = "import sys; from tests.cli.conftest import run; run(*sys.argv[1:])"


class Verify:
    """The command, in a separate process group."""

    def __init__(self, folder: Path, *more: str) -> None:
        self._folder, number = folder, len(list(folder.glob("said*")))
        self.said, self._errors = folder / f"said{number}", folder / f"errors{number}"
        line = ["verify", "shop", "--timeout", "60", "-o", "json", "--jars", ",".join(map(str, ensure("delta"))), *more]
        with self.said.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *line], stdout=out, stderr=errors, start_new_session=True,
                env={**os.environ, "TMPDIR": str(folder / "tmp")},
            )  # fmt: skip

    @property
    def scratch(self) -> list[Path]:
        return [p for p in (self._folder / "changelog" / ".verify").glob("*") if p.is_dir()]

    def until(self, condition: Callable[[], object]) -> None:
        """:raises AssertionError: it has ended before"""
        while not condition():
            assert self._process.poll() is None, self._errors.read_text()[-3000:]
            time.sleep(0.02)

    def java(self) -> list[int]:
        """The processes of Spark."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
                if name == "java" and int(rest.split()[2]) == self._process.pid:
                    found.append(int(stat.parent.name))
        return found

    def kill(self, *, group: bool = True) -> None:
        (os.killpg if group else os.kill)(self._process.pid, signal.SIGKILL)
        self._process.wait(LONGEST_S)

    def wait(self) -> tuple[int, dict[str, Any]]:
        status = self._process.wait(LONGEST_S)
        text = self.said.read_text()
        return status, json.loads(text[text.index("{") :]) if "{" in text else {}

    def errors(self) -> str:
        return self._errors.read_text()

    def end(self) -> None:
        """The part of it that continues."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _wait_for_reads(verify: Verify, r: random.Random) -> None:
    """Wait until it reads rows of the source."""
    verify.until(lambda: any(s.rglob("*.parquet") for s in verify.scratch))
    time.sleep(r.random())


def _wait_for_tables(verify: Verify, r: random.Random) -> None:
    """Wait until it begins to wait for the tables."""
    verify.until(lambda: any((s / "plan.json").exists() for s in verify.scratch))


def _wait_for_spark(verify: Verify, r: random.Random) -> None:
    """Wait until Spark is there, and for some of the time that it takes."""
    verify.until(verify.java)
    time.sleep(r.uniform(2, 9))


def test_whatever_is_killed_the_next_one_is_right_and_removes_what_is_left(
    mariadb: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    r = random.Random(3)
    (tmp_path / "tmp").mkdir()
    with mariadb.database("killed") as db:
        db.sql(
            "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(400))",
            "INSERT INTO orders SELECT seq, REPEAT(MD5(seq), 12) FROM seq_1_to_150000",
            "CREATE TABLE parts (code VARCHAR(20) PRIMARY KEY, n INT)",
            "INSERT INTO parts VALUES ('a', 1), ('b', 2)",
        )
        properties = {"database.server.id": 4323, "batch.max.rows": 20000}
        shop = FollowedMariaDb(
            mariadb, db, spark, monkeypatch, tmp_path, location="lake/{table}", properties=properties
        )  # fmt: skip
        shop.follow()
        spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/orders` WHERE id IN (7, 80000)")
        spark.sql(f"UPDATE delta.`{tmp_path}/lake/parts` SET n = 3 WHERE code = 'b'")
        known = belongings(tmp_path)

        for moment, group in (
            (_wait_for_reads, True),
            (_wait_for_tables, True),
            (_wait_for_spark, True),
            (_wait_for_spark, False),
        ):
            verify = Verify(tmp_path)
            moment(verify, r)
            verify.kill(group=group)
            assert len(verify.scratch) == 1  # that of the one before is gone
            assert belongings(tmp_path) == known
            orphan = verify

        verify = Verify(tmp_path)
        _wait_for_spark(verify, r)
        orphan.end()
        for pid in verify.java():
            os.kill(pid, signal.SIGKILL)
        status, _ = verify.wait()
        assert status == 2, verify.errors()
        assert verify.scratch == []

        # two at once
        both = Verify(tmp_path, "--repair"), Verify(tmp_path, "--repair")
        for verify in both:
            status, found = verify.wait()
            assert status == 1, verify.errors()
            counts = {
                t["topic"].rpartition(".")[2]: (t["missing"], t["surplus"], t["different"]) for t in found["tables"]
            }
            assert counts == {"orders": (2, 0, 0), "parts": (0, 0, 1)}
        assert verify.scratch == []
        assert not list((tmp_path / "tmp").glob("cdc-scratch-*"))
        assert belongings(tmp_path)[1] == known[1]  # signals are in the state, and nothing else
        shop.follow()
        assert [row.state for row in shop.store.signals_of("shop", 10)] == ["done"] * 4
        assert Verify(tmp_path).wait()[0] == 0
    shop.store.close()
