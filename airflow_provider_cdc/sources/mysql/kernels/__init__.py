"""The kernels: decode bytes of the protocol into column buffers. numba compiles them; they use no Python objects and release the GIL.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``, or its ``.py_func``), which is the reference in tests. No kernel
reads past the end that it was given: a value that goes past it is reported as an error, with its column.

Compiling takes some seconds once per installation; numba caches the result on disk (in ``NUMBA_CACHE_DIR``).

The codes and fields of events are here at once; the kernels, and numba with them, are imported when the first of them is asked for: a run that finds nothing
to decode does without.
"""

import importlib
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.sources.mysql.kernels.event_array_layout import *
from airflow_provider_cdc.sources.mysql.kernels.event_codes import *

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mysql.kernels.charset_decoder import *
    from airflow_provider_cdc.sources.mysql.kernels.crc import *
    from airflow_provider_cdc.sources.mysql.kernels.event_splitter import *
    from airflow_provider_cdc.sources.mysql.kernels.result_row_decoder import *
    from airflow_provider_cdc.sources.mysql.kernels.row_event_decoder import *
    from airflow_provider_cdc.sources.mysql.kernels.tagged_gtids import *
    from airflow_provider_cdc.sources.mysql.kernels.transaction_router import *

_COMPILED = (
    "charset_decoder",
    "crc",
    "transaction_router",
    "event_splitter",
    "result_row_decoder",
    "row_event_decoder",
    "tagged_gtids",
)


def __getattr__(name: str) -> Any:
    """Import the kernels when a public name of one of their modules is used for the first time."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: dict[str, Any] = {}
    for module in (importlib.import_module(f"{__name__}.{part}") for part in _COMPILED):
        public = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        found |= {n: getattr(module, n) for n in public}
    globals().update(found)
    if name not in found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found[name]
