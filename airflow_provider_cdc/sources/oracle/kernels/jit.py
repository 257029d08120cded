"""How kernels are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba as nb

_F = TypeVar("_F", bound=Callable[..., Any])

STAMP = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()
"""Stands for the sources of all kernels. numba compiles a kernel's helpers into it, yet keeps the result as long as the kernel's
own file is the same: after an upgrade that changed only a helper, the old machine code would go on running."""


def jit(function: _F) -> _F:
    """Compile without the GIL, keep the result on disk until any kernel's source changes.

    ``NUMBA_BOUNDSCHECK=1`` turns the checks of indices on; give it a ``NUMBA_CACHE_DIR`` of its own.
    """
    compiled: Any = nb.njit(cache=True, nogil=True)(function)
    if compiled is function:  # NUMBA_DISABLE_JIT=1
        return function
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        return cast(_F, nb.njit(nogil=True)(function))
    file._source_stamp = (file._source_stamp, STAMP)
    return cast(_F, compiled)
