"""Applies in a separate process, which may kill itself: ``python -m tests.targets.lake.child``.

Each line that it reads is a list in JSON: change log, connector, location, kind of target, rules of tables; ``rebuild``, a name and ``--to``, if it builds
tables again; and maybe where it dies: ``before``, ``after`` or ``during`` the
N-th write to a table; the whole process group goes, JVM included. It answers
with ``answer: ``, and ``done`` or the error in JSON; whatever else is printed is Spark's.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges
from airflow_provider_cdc.targets.lake.jobs.rebuild_tables import RebuildTables
from tests.targets.lake.lake import start_spark
from tests.targets.lake.points import hook_format


def kill() -> None:
    """End this process and its JVM without a word."""
    os.killpg(0, signal.SIGKILL)


class KilledWrite:
    """Kills the process at a write."""

    def __init__(self, point: str, number: int) -> None:
        self._point, self._number = point, number
        self._writes, self._lock = 0, threading.Lock()

    def __call__(self, location: str, name: str, write: Callable[[], Any]) -> Any:
        with self._lock:
            self._writes += 1
            chosen = self._writes == self._number
        if chosen and self._point == "before":
            kill()
        if chosen and self._point == "during":
            threading.Timer(0.2, kill).start()
        result = write()
        if chosen and self._point == "after":
            kill()
        return result


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    spark = start_spark()
    for line in sys.stdin:
        changelog, connector, location, kind, tables, *point = json.loads(line)
        where = {"location": location, "target": kind}
        job: ApplyChanges | RebuildTables
        if point[:1] == ["rebuild"]:
            _, name, to, *point = point
            job = RebuildTables(spark, ChangeLog(changelog), connector, to=to, **where)
            run: Callable[[], object] = partial(job.run, [name])
        else:
            rules = TableRules.parse(tables)
            job = ApplyChanges(spark, ChangeLog(changelog), connector, threads=2, tables=rules, **where)
            run = job.run
        if point:
            job._format = hook_format(load_format(kind), KilledWrite(*point))
        try:
            run()
        except Exception:
            print("answer:", json.dumps(traceback.format_exc()), flush=True)
        else:
            print("answer: done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
