"""The array kernels: from bytes of the wire to columns, compiled by numba, free of the GIL and of Python objects.

Each function also runs as plain Python (``NUMBA_DISABLE_JIT=1``, or its ``.py_func``), which is the reference in tests. No kernel
reads past the end that it was given: a value that would is reported as an error, with its column.

Compiling takes some seconds once per installation; numba keeps the result on disk (``NUMBA_CACHE_DIR`` says where).
"""

from airflow_provider_cdc.sources.mysql.kernels.crc import *
from airflow_provider_cdc.sources.mysql.kernels.results import *
from airflow_provider_cdc.sources.mysql.kernels.route import *
from airflow_provider_cdc.sources.mysql.kernels.rows import *
from airflow_provider_cdc.sources.mysql.kernels.split import *
from airflow_provider_cdc.sources.mysql.kernels.tagged import *
