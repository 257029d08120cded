"""A process that applies batches until it is killed, for the tests of that; it starts fast, as it forks from one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.process import BaseProcess
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.parallel.staged_parallel_apply import StagedDatabaseApply, StagingSizes
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.servers.derby import adapt_engine
from tests.targets.database.workers import in_turn

ALL = StagingSizes(little=1, share=3000, partition=8000)
"""Everything is staged, in many parts."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.targets.database.killed"])


def start(
    properties: dict[str, Any], changelog: str, connector: str, *, statement: int = 0, staged: bool = False
) -> BaseProcess:
    """Apply in a separate process.

    :param statement: number of the statement before which it is killed; it may be a commit. 0: none
    :param staged: everything comes by way of staging tables; the statements of those who fill them count, too
    """
    process = _CONTEXT.Process(target=_run, args=(properties, changelog, connector, statement, staged), daemon=True)
    process.start()
    return process


def _run(properties: dict[str, Any], changelog: str, connector: str, statement: int, staged: bool) -> None:
    config = DatabaseTargetConfig.parse(properties)
    engine, count = adapt_engine(open_engine(config)), 0

    def count_statement(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    for event in ("before_cursor_execute", "commit"):
        sa.event.listen(sa.Engine if staged else engine, event, count_statement)
    log = ChangeLog(changelog)
    if staged:
        StagedDatabaseApply(engine, config, log, connector, in_turn, sizes=ALL).apply()
    else:
        DatabaseApply(engine, config, log, connector).apply()
