"""A process that applies batches until it is killed, for the tests of that; it starts fast, as it forks from one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.sink.apply import Sink
from airflow_provider_cdc.sink.config import SinkConfig
from airflow_provider_cdc.sink.database import open_engine
from tests.support.derby import adapted

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.sink.killed"])


def start(properties: dict[str, Any], changelog: str, connector: str, *, statement: int = 0) -> BaseProcess:
    """Apply in a process of its own.

    :param statement: number of the statement before which it is killed; it may be a commit. 0: none
    """
    process = _CONTEXT.Process(target=_run, args=(properties, changelog, connector, statement), daemon=True)
    process.start()
    return process


def _run(properties: dict[str, Any], changelog: str, connector: str, statement: int) -> None:
    config = SinkConfig.parse(properties)
    engine, count = adapted(open_engine(config)), 0

    def one(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(engine, "before_cursor_execute", one)
    sa.event.listen(engine, "commit", one)
    Sink(engine, config, ChangeLog(changelog), connector).apply()
