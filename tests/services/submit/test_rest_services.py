"""Livy, Databricks and the Spark operator, by the hooks of Airflow's own providers, against stand-ins of their REST interfaces."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.submit import build_platform, job_runner
from airflow_provider_cdc.services.submit.job_runner import cancel_job, run_job, submit_job, wait_for_end
from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import SparkJob
from tests.support.servers.spark_runs import Program
from tests.support.servers.spark_services import LOSE_ANSWER, SERVICES, DatabricksService, LivyService, SparkService

SCRIPT = "import sys, time; open(sys.argv[2], 'a').write(sys.argv[3]); time.sleep(float(sys.argv[4])); sys.exit(int(sys.argv[5]))"


def command(program: Program) -> list[str]:
    return [sys.executable, "-c", SCRIPT, program.script, *program.arguments]


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkService]:
    pytest.importorskip(SERVICES[request.param].PROVIDER)
    monkeypatch.setattr(job_runner, "FIRST_DELAY_S", 0.01)
    with SERVICES[request.param](command) as service:
        service.connect(monkeypatch)
        yield service


@pytest.fixture
def platform(service: SparkService) -> Platform:
    name = next(name for name, kind in SERVICES.items() if isinstance(service, kind))
    built = build_platform(
        {
            "platform": name,
            "application_uri": "s3://lake/cdc",
            "poll_interval": 0.05,
            "patience": 5.0,
            **service.PARAMETERS,
        }
    )
    assert built is not None
    return built


def job(folder: Path, *, seconds: float = 0, code: int = 0, **more: Any) -> SparkJob:
    arguments = (f"{folder}/ran", "once", str(seconds), str(code))
    return SparkJob(name="cdc-apply-shop", script="/x/apply_changes.py", arguments=arguments, token="t" * 32, **more)


def test_the_job_runs_once_with_its_arguments(platform: Platform, service: SparkService, tmp_path: Path) -> None:
    assert run_job(platform, job(tmp_path), lambda run: None).stage == "succeeded"
    assert (tmp_path / "ran").read_text() == "once"
    assert service.runs[1].program.script == "s3://lake/cdc/apply_changes.py"


def test_a_job_that_fails_is_a_failed_run_with_the_reason(platform: Platform, tmp_path: Path) -> None:
    status = run_job(platform, job(tmp_path, code=3), lambda run: None)
    assert status.stage == "failed"
    assert "driver" in status.message or "Task cdc failed" in status.message


def test_a_lost_answer_starts_no_second_run(platform: Platform, service: SparkService, tmp_path: Path) -> None:
    # Livy is asked for known batches first, so its third request is the one that starts the run
    service.faults = ["", "", LOSE_ANSWER] if isinstance(service, LivyService) else [LOSE_ANSWER]
    assert run_job(platform, job(tmp_path), lambda run: None).stage == "succeeded"
    assert len(service.runs) == 1
    assert (tmp_path / "ran").read_text() == "once"


@pytest.mark.parametrize("fault", [429, 503, LOSE_ANSWER])
def test_a_service_that_is_busy_or_gone_for_a_while_is_asked_again(
    platform: Platform, service: SparkService, tmp_path: Path, fault: int | str
) -> None:
    service.faults = [fault, fault]
    run = submit_job(platform, job(tmp_path, seconds=0.2))
    service.faults = [fault] * 3
    assert wait_for_end(platform, run).stage == "succeeded"
    assert (tmp_path / "ran").read_text() == "once"


def test_a_request_that_is_rejected_is_not_repeated(platform: Platform, service: SparkService, tmp_path: Path) -> None:
    service.faults = [403]
    with pytest.raises(Exception, match="403"):
        submit_job(platform, job(tmp_path))
    assert len(service.requests) == 1


def test_a_run_that_waits_is_pending_and_can_be_cancelled(
    platform: Platform, service: SparkService, tmp_path: Path
) -> None:
    service.hold = True
    run = submit_job(platform, job(tmp_path))
    assert wait_for_end(platform, run, timeout=0.1).stage == "pending"
    cancel_job(platform, run)
    assert not (tmp_path / "ran").exists()


def test_a_cancelled_run_ends_in_the_middle(platform: Platform, service: SparkService, tmp_path: Path) -> None:
    run = submit_job(platform, job(tmp_path, seconds=60))
    while not (tmp_path / "ran").exists():
        wait_for_end(platform, run, timeout=0.1)
        time.sleep(0.05)
    process = service.runs[1].process
    assert process is not None
    cancel_job(platform, run)
    assert process.poll() not in (None, 0)
    cancel_job(platform, run)  # one that has ended is left alone
    if isinstance(service, DatabricksService):  # Livy forgets a batch
        assert wait_for_end(platform, run).stage == "cancelled"


def test_a_secret_without_a_reference_is_not_sent(platform: Platform, service: SparkService, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="storage options cannot be passed") as caught:
        submit_job(platform, job(tmp_path, secret_environment={"CDC_STORAGE_OPTIONS": '{"key": "sesame"}'}))
    assert "sesame" not in str(caught.value)
    assert not service.requests
    assert caught.value.remedy
