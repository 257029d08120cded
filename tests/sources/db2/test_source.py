"""Modules that a run without changes imports."""

from __future__ import annotations

import subprocess
import sys


def test_a_run_without_changes_loads_no_kernels() -> None:
    """Kernels take a third of the processor time of a run without changes."""
    looked = "import sys, airflow_provider_cdc.sources.db2.source; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", looked], check=True)
