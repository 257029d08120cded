"""Compilation of the kernels of all sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba as nb
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

_F = TypeVar("_F", bound=Callable[..., Any])
_HERE = Path(__file__)
_SHARED = _HERE.with_name("relational")
_MARK = b"sources.jit import "


def jit(function: _F) -> _F:
    """Compile without the GIL; keep the result on disk until the source of any kernel of the same database, or of several, changes.

    Code that was sent to where it runs, in an archive, is compiled there.

    ``NUMBA_BOUNDSCHECK=1`` turns the checks of indices on; give it a separate ``NUMBA_CACHE_DIR``.
    """
    if not _HERE.is_file():
        return cast(_F, nb.njit(nogil=True)(function))
    compiled: Any = nb.njit(nogil=True)(function)
    if compiled is not function:  # NUMBA_DISABLE_JIT=1
        compiled._cache = _KernelCache(function)
    return cast(_F, compiled)


class _KernelCache(FunctionCache):
    """Keeps machine code on disk, as numba does, with two differences.

    It is compiled again when the source of any kernel beside it changes. And to load it, numba's declarations of all functions are not loaded:
    only the compiler needs them, which loads them itself. That is three quarters of the time of a load.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        file = self._cache_file
        file._source_stamp = (
            file._source_stamp,
            fingerprint_sources(_folder(Path(function.__code__.co_filename)), _SHARED),
        )

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Load the machine code of a signature; ``None`` if there is none."""
        rtsys.initialize(target_context)  # the functions that count references to arrays
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target_context)  # type: ignore[no-untyped-call]


def inline_helper(function: _F) -> _F:
    """Compile a helper of kernels that becomes part of each of them, as if its lines stood there.

    For work that is done once per value: there a call costs more than the called function.
    """
    return cast(_F, nb.njit(inline="always", nogil=True)(function))


def force_inline_helper(function: _F) -> _F:
    """Compile a helper of kernels that the machine code of each of them contains, and does not call.

    As :func:`inline_helper`, for helpers that branch much: these are compiled once, and only then put into their callers. A call passes each array as seven words.
    """
    return cast(_F, nb.njit(forceinline=True, nogil=True)(function))


@cache
def fingerprint_sources(*folders: Path) -> str:
    """Hash the sources of all kernels below some folders, and how they are compiled.

    numba compiles a kernel's helpers and constants into it, yet keeps the result as long as the kernel's own file is the same: after an
    upgrade that changed only a helper, the old machine code would still run.
    """
    texts = {path: path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))}
    kernels = [text for path, text in texts.items() if path.parent.name == "kernels" or _MARK in text]
    return hashlib.sha256(b"".join([_HERE.read_bytes(), *kernels])).hexdigest()


def _folder(file: Path) -> Path:
    """Return the database's folder that a file is in; a file elsewhere stands for its own folder."""
    above = [folder for folder in file.parents if folder.parent == _HERE.parent]
    return above[0] if above else file.parent
