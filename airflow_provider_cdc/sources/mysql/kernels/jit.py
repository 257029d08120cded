"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba as nb

_F = TypeVar("_F", bound=Callable[..., Any])


def jit(function: _F) -> _F:
    """Compile without the GIL, keep the result on disk."""
    return cast(_F, nb.njit(cache=True, nogil=True, boundscheck=False)(function))
