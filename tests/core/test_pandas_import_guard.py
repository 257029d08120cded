"""A run does not import pandas; code that asks for it has it."""

from __future__ import annotations

import subprocess
import sys

_ASKED = """
import sys
from airflow_provider_cdc.core.pandas_import_guard import without_pandas
without_pandas()
import datetime as dt
import numpy as np
import pyarrow as pa
pa.array([dt.datetime(2026, 1, 1)]).to_pylist(), pa.array(np.arange(3)), pa.array([1, None]).to_numpy(zero_copy_only=False)
print("pandas" in sys.modules)
print(pa.table({"a": [1, 2]}).to_pandas()["a"].sum())
import pandas
print(pa.array(pandas.Series([1.0, float("nan")]), from_pandas=True).null_count)
"""


def test_pyarrow_imports_pandas_only_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", _ASKED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "3", "1"]
