"""Processes that die, and what they leave."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.fork import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs captures of the memory source in processes of their own."""
    with Forks("tests.support.processes.crash") as forks:
        yield forks


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of runs need not wait for a disk."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="cdc-crash-") as name:
        yield Path(name)
