"""A run of a connector in a separate process, as by the capture task.

``python -m dev.benchmarks.programs.run_fixed FILE`` runs it; FILE describes the connector.

The process measures nothing but what it was: its parent knows how long it took. The last line of stdout is a JSON object.

It ends as the process of an Airflow task does (``supervisor._fork_main``): by ``os._exit``, without a last collection of garbage.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    from airflow_provider_cdc.connector import ConnectorDefinition, open_capture

    if given["source"] == "memory":  # lives within the process: it is part of what is measured
        from dev.benchmarks.connector.fixed import memory_database

        memory_database()
    definition = ConnectorDefinition("bench", given["source"], given["changelog"], given["properties"])
    with open_capture(definition, given["state"], secrets=given["secrets"]) as capture:
        result = capture.run()
    heavy = [name for name in ("numba", "numpy", "pandas", "pyarrow") if name in sys.modules]
    status = Path("/proc/self/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    print(json.dumps({"events": result.events, "imported": heavy, "peak_rss_mb": peak_kb / 1024}), flush=True)
    return 0


if __name__ == "__main__":
    exit_code = main()
    atexit._run_exitfuncs()
    os._exit(exit_code)
