"""Machine code that is kept on disk is that of the sources as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from airflow_provider_cdc.sources import jit as module
from airflow_provider_cdc.sources.jit import fingerprint_sources
from dev import paths

SOURCES = Path(module.__file__).parent


def test_the_stamp_follows_every_file_with_kernels_and_no_other(tmp_path: Path) -> None:
    names = ("own/a.py", "own/kernels/b.py", "own/kernels/constants.py", "own/c.py")
    kernel, helper, constants, other = (tmp_path / name for name in names)
    shared = tmp_path / "shared" / "d.py"
    for folder in (helper.parent, shared.parent):
        folder.mkdir(parents=True)
    kernel.write_text("from airflow_provider_cdc.sources.jit import jit\n")
    helper.write_text("from airflow_provider_cdc.sources.jit import jit\nONE = 1\n")
    constants.write_text("TWO = 2\n")
    other.write_text("ONE = 1\n")

    def current_fingerprint() -> str:
        fingerprint_sources.cache_clear()
        return fingerprint_sources(tmp_path / "own", tmp_path / "shared")

    before = current_fingerprint()
    other.write_text("ONE = 2\n")
    assert current_fingerprint() == before
    helper.write_text("from airflow_provider_cdc.sources.jit import jit\nONE = 2\n")
    changed = current_fingerprint()
    assert changed != before
    constants.write_text("TWO = 3\n")
    before, changed = changed, current_fingerprint()
    assert changed != before
    shared.write_text("from airflow_provider_cdc.sources.jit import jit\n")
    assert current_fingerprint() not in (before, changed)


def test_every_file_with_kernels_is_seen() -> None:
    with_kernels = [
        path for path in SOURCES.rglob("*.py") if re.search("^@(jit|inlined|forced)$", path.read_text(), re.M)
    ]
    assert len(with_kernels) > 8
    assert [path for path in with_kernels if module._MARK not in path.read_bytes()] == []
    assert {module._folder(path).name for path in with_kernels} == {
        "db2",
        "mongodb",
        "mysql",
        "oracle",
        "postgresql",
        "relational",
    }


def test_a_kernel_is_compiled_again_when_one_changes_that_sources_share() -> None:
    """It has that one's machine code in its own."""
    from airflow_provider_cdc.sources.mysql import kernels

    file = kernels.decode_rows._cache._cache_file  # type: ignore[attr-defined]
    assert file._source_stamp[1] == fingerprint_sources(SOURCES / "mysql", SOURCES / "relational")


def test_kernels_are_loaded_without_the_compiler_and_others_are_compiled_after_that(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "from airflow_provider_cdc.sources.jit import jit\n\n\n"
        "@jit\ndef total(a):\n    copy = a.copy()\n    sum_ = 0.0\n    for x in copy:\n        sum_ += x\n    return sum_\n"
    )
    program = (
        "import numba, numpy as np, one\n"
        "from numba.core.registry import cpu_target\n"
        "a = np.arange(5.0)\n"
        "print(one.total(a), len(one.total.stats.cache_hits), len(cpu_target.target_context._registries))\n"
        "print(numba.njit(lambda a: np.sqrt(a).sum() + len({1: np.sort(a)}))(a**2))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": f"{tmp_path}:{paths.ROOT}"}

    def run() -> list[str]:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, second = run(), run()
    assert (first[:2], first[3]) == (["10.0", "0"], "11.0")
    assert second == ["10.0", "1", "0", "11.0"]
