"""Machine code that is kept on disk is that of the sources as they are."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_cdc.sources import jit as module
from airflow_provider_cdc.sources.jit import stamp

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

    def now() -> str:
        stamp.cache_clear()
        return stamp(tmp_path / "own", tmp_path / "shared")

    before = now()
    other.write_text("ONE = 2\n")
    assert now() == before
    helper.write_text("from airflow_provider_cdc.sources.jit import jit\nONE = 2\n")
    changed = now()
    assert changed != before
    constants.write_text("TWO = 3\n")
    before, changed = changed, now()
    assert changed != before
    shared.write_text("from airflow_provider_cdc.sources.jit import jit\n")
    assert now() not in (before, changed)


def test_every_file_with_kernels_is_seen() -> None:
    with_kernels = [
        path for path in SOURCES.rglob("*.py") if re.search("^@(jit|inlined|forced)$", path.read_text(), re.M)
    ]
    assert len(with_kernels) > 8
    assert [path for path in with_kernels if module._MARK not in path.read_bytes()] == []
    assert {module._folder(path).name for path in with_kernels} == {"db2", "mongodb", "mysql", "oracle", "relational"}


def test_a_kernel_is_compiled_again_when_one_changes_that_sources_share() -> None:
    """It has that one's machine code in its own."""
    from airflow_provider_cdc.sources.mysql import kernels

    file = kernels.decode_rows._cache._cache_file  # type: ignore[attr-defined]
    assert file._source_stamp[1] == stamp(SOURCES / "mysql", SOURCES / "relational")
