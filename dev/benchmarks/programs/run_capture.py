"""A measured capture in a separate process.

``python -m dev.benchmarks.programs.run_capture FILE`` runs it; FILE describes the capture.

The figures are those of the run itself, from the prerequisites check to the last commit, without the start of Python and its
imports; CPU with the start is given beside them. (Debezium's are those from its first event to its last.) The last line of stdout is a JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

_LATE_IMPORTS = (
    "airflow_provider_cdc.core.capture.capture_run",
    "airflow_provider_cdc.changelog.files.parquet_writer",
    "airflow_provider_cdc.sources.jit",
    "fsspec.implementations.local",
)
"""What a capture of any source imports when it runs. The machine code of kernels is loaded within the run."""


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
    from airflow_provider_cdc.sources import load_source
    from airflow_provider_cdc.state.state_store import StateStore
    from dev.benchmarks.measure.stages import Stages, watch_capture

    if given.get("files"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (given["files"], given["files"]))
    stages = Stages()
    if given["stages"]:
        watch_capture(stages, given["source"])
    StateStore(given["state"]).create_tables()
    definition = ConnectorDefinition("bench", given["source"], given["changelog"], given["properties"])
    load_source(definition.source)
    for module in _LATE_IMPORTS:  # imports belong to the start, as a JVM's classes do
        importlib.import_module(module)
    started, cpu = time.perf_counter(), _cpu()
    ended, most_open = threading.Event(), [0]
    watching = [
        threading.Thread(target=_show, args=(Path(given["changelog"]), ended), daemon=True),
        threading.Thread(target=_count_files, args=(most_open, ended), daemon=True),
    ]
    for thread in watching:
        thread.start()
    with open_capture(definition, given["state"], secrets=given["secrets"]) as capture:
        result = capture.run()
    seconds, used = time.perf_counter() - started, _cpu() - cpu
    figures: dict[str, Any] = {
        "events": result.events,
        "seconds": round(seconds, 3),
        "cpu_s": round(used, 3),
        "cpu_s_total": round(_cpu(), 3),
        "peak_rss_mb": round(_peak_kb() / 1024, 1),
        "batches": len(result.batches),
        "mined": result.metrics.get("streaming", {}).get("TotalProcessedRows", 0),
        "stages": stages.figures(),
    }
    ended.set()
    for thread in watching:  # two threads that print share a line
        thread.join()
    figures["open_files"] = most_open[0]
    print(json.dumps(figures), flush=True)
    return 0


def _cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def _peak_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def _count_files(most: list[int], ended: threading.Event) -> None:
    """Note the greatest number of files that the process has had open at the same time."""
    while not ended.wait(0.1):
        most[0] = max(most[0], len(os.listdir("/proc/self/fd")) - 1)


def _show(changelog: Path, ended: threading.Event) -> None:
    while not ended.wait(2):
        size = sum(f.stat().st_size for f in changelog.rglob("*.parquet"))
        print(f"progress {size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
