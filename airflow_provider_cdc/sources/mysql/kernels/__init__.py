"""The kernels: decode bytes of the protocol into column buffers. numba compiles them; they use no Python objects and release the GIL.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``, or its ``.py_func``), which is the reference in tests. No kernel
reads past the end that it was given: a value that goes past it is reported as an error, with its column.

Compiling takes some seconds once per installation; numba caches the result on disk (in ``NUMBA_CACHE_DIR``).
"""

from airflow_provider_cdc.sources.mysql.kernels.crc import *
from airflow_provider_cdc.sources.mysql.kernels.results import *
from airflow_provider_cdc.sources.mysql.kernels.route import *
from airflow_provider_cdc.sources.mysql.kernels.rows import *
from airflow_provider_cdc.sources.mysql.kernels.split import *
from airflow_provider_cdc.sources.mysql.kernels.tagged import *
