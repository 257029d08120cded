"""Keeps libraries out of a run that would be imported only because they are installed."""

from __future__ import annotations

import sys


class _PandasBlocker:
    """An import finder that does not find pandas. All other modules are left to the finders behind it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the import of pandas is blocked in capture processes", name=name)


def without_pandas() -> None:
    """Keep pyarrow from importing pandas.

    With its first array, pyarrow imports pandas to check whether the values are pandas' own; here they never are, and the
    import costs a run half a CPU second.

    Other code can still import pandas, and ``to_pandas`` does.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _PandasBlocker)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_PandasBlocker)
