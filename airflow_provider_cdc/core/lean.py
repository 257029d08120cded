"""What a run does without: libraries that are imported only because they are there."""

from __future__ import annotations

import sys


class _NotNow:
    """Finds no pandas, and leaves everything else to others."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def without_pandas() -> None:
    """Keep pyarrow from importing pandas at its first array, to see whether the values are pandas' own: ours never are, and pandas is
    no requirement of ours. It costs a run half a CPU second.

    Whoever asks for pandas gets it: it can be imported, and ``to_pandas`` imports it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NotNow)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NotNow)
