"""Capture runs that kill or stop themselves at the n-th step towards something durable."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import fsspec.implementations.local  # noqa: F401 - what a run loads late is loaded before the fork
import pyarrow.parquet  # noqa: F401
import sqlalchemy.dialects.sqlite  # noqa: F401

from airflow_provider_cdc.changelog.files import storage
from airflow_provider_cdc.changelog.files.storage import DurableFile, Storage
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.position import MemoryPosition
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.leases import Leases
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.verify.reference_capture import open_verification
from tests.support.workloads.memory_work import Workload

LEASE_S = 0.1
"""How long a dead run keeps its connector; short, because someone waits for it after every death."""


class StepCounter:
    """Counts the steps of this process towards something durable; at step ``at`` it gets a signal.

    :param at: number of the step, 0 = none
    :param only: count only steps whose name has this in it
    """

    def __init__(self, at: int, signal_: int = signal.SIGKILL, only: str = "") -> None:
        self.at, self.signal, self.only = at, signal_, only
        self.count = 0
        self.names: list[str] = []
        self._lock = threading.Lock()

    def step(self, name: str) -> None:
        if threading.current_thread().name == "cdc-lease" or self.only not in name:
            return  # renewals come by the clock, not by what the run has done
        with self._lock:
            self.count += 1
            self.names.append(name)
            if self.count == self.at:
                self.note(name)
                os.kill(os.getpid(), self.signal)

    note: Callable[[str], object] = staticmethod(lambda name: None)

    def watch(self) -> None:
        """Put steps around every write of the change log and of the state store in this process."""
        if self.signal == signal.SIGSTOP:  # a renewal that is stopped half-way would lock everybody out
            Leases.keep_alive = lambda leases, lease, stop: stop.wait()  # type: ignore
        self._around(Storage, "create", "create")
        self._around(Storage, "open_output", "open file")
        self._around(Storage, "delete", "delete")
        self._writes()
        self._around(DurableFile, "close", "close file")
        self._around(storage.os, "link", "link", after=True)
        self._transactions()

    def _around(self, owner: Any, name: str, shown: str, *, after: bool = False) -> None:
        """A step before each call; after it only where that is not the same as before the next step."""
        inner = getattr(owner, name)

        def step_and_call(*args: Any, **options: Any) -> Any:
            self.step(f"before {shown}")
            result = inner(*args, **options)
            if after:
                self.step(f"after {shown}")
            return result

        setattr(owner, name, step_and_call)

    def _writes(self) -> None:
        """A Parquet file is a hundred small writes: the first and some of the others will do."""
        inner = DurableFile.write

        def step_and_call(file: DurableFile, data: bytes) -> int:
            count = vars(file)["writes"] = vars(file).get("writes", -1) + 1
            if count % 60 == 0:
                self.step("before write")
            return inner(file, data)

        DurableFile.write = step_and_call  # type: ignore[method-assign]

    def _transactions(self) -> None:
        inner = StateDatabase.open_transaction

        @contextlib.contextmanager
        def step_and_call(database: StateDatabase) -> Iterator[Any]:
            self.step("before transaction")
            with inner(database) as connection:
                yield connection
                self.step("inside transaction")
            self.step("after transaction")

        StateDatabase.open_transaction = step_and_call  # type: ignore[method-assign, assignment]


current = StepCounter(0)
"""Those of this process."""


def source(seed: int, steps: int) -> MemoryDatabase:
    """A memory database, the same in every process: rows, then ``steps`` transactions and statements."""
    database, r = MemoryDatabase("crash"), Random(seed)
    work = Workload(database, ddl=0.2)
    for _ in range(steps):
        work.step(r)
    return database


def purge_confirmed(database: MemoryDatabase, folder: Path) -> None:
    """Forget the log up to the position that runs in this folder have confirmed, as a database with replication slots does."""
    mark = folder / "confirmed"
    database.purge_log(int(mark.read_text()) if mark.exists() else 0)


def _confirm_in(database: MemoryDatabase, folder: Path) -> None:
    """Make this process forget the log as soon as a run confirms a position."""

    def confirm_position(source: MemorySource, position: MemoryPosition) -> None:
        (folder / "confirmed").write_text(str(max(position.entry, database.oldest)))
        purge_confirmed(database, folder)

    MemorySource.confirm_position = confirm_position  # type: ignore[method-assign, assignment]


def properties(**more: Any) -> dict[str, Any]:
    """Small blocks and batches: a few rows show every seam."""
    small = {"memory.database": "crash", "memory.block.rows": 2, "batch.max.rows": 10, "poll.interval.ms": 1}
    return {**small, "snapshot.max.threads": 2, **more}


def capture(
    folder: str, kind: str = "memory", *, seed: int = 0, steps: int = 0, options: Mapping[str, Any] | None = None,
    secrets: Mapping[str, Any] | None = None, at: int = 0, signal_: int = signal.SIGKILL, only: str = "",
    lease_wait_s: float = 30, lease_s: float = LEASE_S,
) -> dict[str, Any]:  # fmt: skip
    """Run the connector ``test`` in ``folder`` once; called in a separate process."""
    if kind == "memory":
        database = source(seed, steps)
        purge_confirmed(database, Path(folder))
        _confirm_in(database, Path(folder))
    random.seed(os.getpid())
    global current
    current = watched = StepCounter(at, signal_, only)
    watched.note = lambda name: Path(folder, "died").write_text(name)
    watched.watch()
    chosen = properties() if kind == "memory" else {}
    definition = ConnectorDefinition("test", kind, f"{folder}/changelog", {**chosen, **(options or {})})
    url = f"sqlite:///{folder}/state.db"
    with open_capture(definition, url, secrets=secrets, lease_ttl_s=lease_s, lease_wait_s=lease_wait_s) as ready:
        result = ready.run()
    return {"events": result.events, "batches": result.batches, "count": watched.count, "names": watched.names}


def verification(folder: str, *, seed: int, steps: int, at: int = 0) -> dict[str, Any]:
    """Reads the source for a comparison with the tables of the connector ``test``, and ends without one."""
    source(seed, steps)
    tempfile.tempdir = f"{folder}/tmp"
    watched = StepCounter(at)
    watched.note = lambda name: Path(folder, "died").write_text(name)
    watched.watch()
    for name in ("replace", "delete_folder"):
        watched._around(Storage, name, name, after=True)
    definition = ConnectorDefinition("test", "memory", f"{folder}/changelog", properties())
    with open_verification(definition, f"sqlite:///{folder}/state.db") as prepared:
        prepared.prepare_plan(wait_s=0)
    return {"count": watched.count, "names": watched.names}


def write_much(database: MemoryDatabase) -> None:
    """Rows that do not become smaller by compression, about two megabytes."""
    r = Random(1)
    database.create_table("shop.much", {"id": "int64!", "body": "binary"}, key=("id",))
    for i in range(200):
        with database.transaction() as t:
            t.insert("shop.much", {"id": i, "body": r.randbytes(10_000)})


def capture_much(folder: str, *, seed: int, steps: int, largest_file: int) -> dict[str, Any]:
    """A run that meets :func:`write_much` where no file may grow beyond a size, as on a full disk."""
    write_much(source(seed, steps))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    definition = ConnectorDefinition("test", "memory", f"{folder}/changelog", properties(**{"batch.max.rows": 1000}))
    with open_capture(definition, f"sqlite:///{folder}/state.db") as ready:
        return {"events": ready.run().events}
