"""The folders of the developers' tools for fetched and made files, below ``.dev/``, which may be deleted any time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
HOME = Path(os.environ.get("CDC_DEV_HOME") or ROOT / ".dev").absolute()
"""One folder for all downloads; set ``CDC_DEV_HOME`` to share it between clones or to cache it in CI."""

TOOLS = HOME / "tools"
JARS = HOME / "jars"
OPT = HOME / "opt"
TEMPLATES = HOME / "templates"
RUN = HOME / "run"
LOG = HOME / "log"


@contextmanager
def hold_lock(name: str) -> Iterator[None]:
    """Hold the lock ``name``, so that two set-ups or test runs never fetch or build the same thing at once."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
