"""A measured apply to a database in a separate process.

``python -m dev.benchmarks.programs.run_sink FILE`` runs it; FILE describes the apply.

The figures are those of the apply itself, without the start of Python, its imports, and some events that go into a separate table
first, as with the connector; CPU with these is given beside them. The last line of stdout is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from dev.benchmarks.measure import machine


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
    from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
    from airflow_provider_cdc.targets.database.target_engine import open_engine

    config = DatabaseTargetConfig.parse({**EQUAL, "connection.url": given["url"]})
    engine, changelog = open_engine(config), ChangeLog(given["changelog"])
    DatabaseApply(engine, config, changelog, "warm").apply()
    began, cpu = time.perf_counter(), time.process_time()
    done = DatabaseApply(engine, config, changelog, "stream").apply()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    figures = {
        "events": done.event_count,
        "seconds": round(seconds, 3),
        "cpu_s": round(used, 3),
        "cpu_s_total": round(time.process_time(), 3),
        "peak_rss_mb": round(machine.rss_mb(os.getpid(), peak=True), 1),
    }
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
