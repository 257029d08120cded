"""Machine code that is kept on disk is that of the sources as they are."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_cdc.sources import jit as module
from airflow_provider_cdc.sources.jit import stamp

SOURCES = Path(module.__file__).parent


def test_the_stamp_follows_every_file_with_kernels_and_no_other(tmp_path: Path) -> None:
    kernel, helper, other = (tmp_path / name for name in ("a.py", "kernels/b.py", "c.py"))
    helper.parent.mkdir()
    kernel.write_text("from airflow_provider_cdc.sources.jit import jit\n")
    helper.write_text("from airflow_provider_cdc.sources.jit import jit\nONE = 1\n")
    other.write_text("ONE = 1\n")

    def now() -> str:
        stamp.cache_clear()
        return stamp(tmp_path)

    before = now()
    other.write_text("ONE = 2\n")
    assert now() == before
    helper.write_text("from airflow_provider_cdc.sources.jit import jit\nONE = 2\n")
    assert now() != before


def test_every_file_with_kernels_is_seen() -> None:
    with_kernels = [path for path in SOURCES.rglob("*.py") if "\n@jit\n" in path.read_text()]
    assert len(with_kernels) > 8
    assert [path for path in with_kernels if module._MARK not in path.read_bytes()] == []
    assert {module._folder(path).name for path in with_kernels} == {"mysql", "oracle"}
