"""The source of Db2 as a run that finds nothing loads it."""

from __future__ import annotations

import subprocess
import sys


def test_a_source_that_only_looks_loads_no_kernels() -> None:
    """They are a third of the processor time of a run that finds nothing."""
    looked = "import sys, airflow_provider_cdc.sources.db2.source; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", looked], check=True)
