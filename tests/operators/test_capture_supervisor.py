"""A capture whose supervisor is killed gives its lease back: its retry need not wait for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from airflow_provider_cdc.state.state_store import StateStore
from tests.support.patience import wait_until

TASK = """
import sys
from pathlib import Path
import pytest
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.targets import task_watch
from tests.support.airflow.airflow_connector import context, make_shop

task_watch.end_with_supervisor.__wrapped__.__kwdefaults__["poll_s"] = 0.2
shop = make_shop(pytest.MonkeyPatch(), Path(sys.argv[1]), "supervised")
CaptureOperator(task_id="capture", definition=shop.definition, conn_id="shop", run_for=3600).execute(context())
"""
SUPERVISOR = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[2]])"


def test_a_capture_whose_supervisor_is_killed_ends_and_returns_its_lease(tmp_path: Path) -> None:
    store = StateStore(f"sqlite:///{tmp_path}/state.db", patience_s=5)
    store.create_tables()
    command = [sys.executable, "-c", SUPERVISOR, TASK, str(tmp_path)]
    with (
        (tmp_path / "task.log").open("w") as log,
        subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log) as supervisor,
    ):
        try:
            wait_until(lambda: getattr(store.find_connector("shop"), "owner", None), "the task has the lease")
            os.kill(supervisor.pid, signal.SIGKILL)
            wait_until(lambda: getattr(store.find_connector("shop"), "run_ended_at", None), "the capture has ended")
            wait_until(lambda: getattr(store.find_connector("shop"), "owner", "") is None, "the lease is free")
            record = store.find_connector("shop")
            assert record is not None
            assert record.dead_owner is None  # it was returned, and has not only expired
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(supervisor.pid, signal.SIGKILL)
    store.close()
