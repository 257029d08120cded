"""Jobs on a service, by ``submit=``.

The service is a stand-in with the three methods of the interface. Its runs write the reports that real jobs write. It loses requests and answers.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator
from airflow_provider_cdc.operators.apply_to_database_on_spark import ApplyToDatabaseOnSparkOperator
from airflow_provider_cdc.services import submit as submit_platforms
from airflow_provider_cdc.services.submit import job_runner
from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob
from airflow_provider_cdc.triggers.spark_job import SparkJobTrigger
from tests.support.airflow.airflow_connector import connect, context
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException, TaskDeferred

LOCATION = "/lake/{database}/{table}"
DEFINITION_PROPERTIES: dict[str, Any] = {}


class Service:
    """A stand-in of a service that runs Spark jobs."""

    poll_interval = 0.01
    patience = 5.0

    def __init__(self, folder: Path) -> None:
        self.reports = ApplyReports(Storage(f"{folder}/changelog"), "shop")
        self.jobs: list[SparkJob] = []
        self.runs: dict[str, str] = {}
        self.stages: list[JobStatus | Exception] = []
        self.lost_answers = 0
        self.report: dict[str, Any] | None = report()
        self.cancelled: list[str] = []

    def submit(self, job: SparkJob) -> str:
        self.jobs.append(job)
        self.runs.setdefault(job.token, f"run-{len(self.runs) + 1}")
        if self.lost_answers:
            self.lost_answers -= 1
            raise ConnectionResetError("connection reset by peer")
        return self.runs[job.token]

    def inspect(self, run: str) -> JobStatus:
        if run in self.cancelled:
            return JobStatus("cancelled", "a user has cancelled it")
        status = self.stages.pop(0) if self.stages else JobStatus("succeeded")
        if isinstance(status, Exception):
            raise status
        if not status.active and self.report is not None:
            self.reports.write(self.report)  # type: ignore[arg-type]
        return status

    def cancel(self, run: str) -> None:
        self.cancelled.append(run)


def report(**failed: str) -> dict[str, Any]:
    table = {
        "topic": "shop.a", "location": "/lake/a", "first_batch": 3, "last_batch": 4, "rows": {"insert": 2}, "seconds": 0.1,
        "position": {"file": "binlog.000001", "pos": 4711},
    }  # fmt: skip
    return {
        "connector": "shop", "target": "delta", "last_batch": 4, "tables": [table], "location": LOCATION, "failed": failed,
        "seconds": 1.5, "lagging": {}, "table_states": {},
    }  # fmt: skip


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(job_runner, "FIRST_DELAY_S", 0.01)
    return Service(tmp_path)


def apply(folder: Path, submit: Any, **more: Any) -> ApplyChangesOperator:
    definition = ConnectorDefinition("shop", "mariadb", f"{folder}/changelog", DEFINITION_PROPERTIES, {})
    return ApplyChangesOperator(task_id="apply", definition=definition, location=LOCATION, submit=submit, **more)


def test_a_service_gets_the_whole_job_and_its_report_is_the_result(tmp_path: Path, service: Service) -> None:
    service.stages = [JobStatus("pending"), JobStatus("running"), JobStatus("succeeded")]
    more = {"conf": {"spark.x": True}, "driver_memory": "2g", "env_vars": {"AWS_REGION": "eu-1"}, "threads": 3}
    done = apply(tmp_path, service, **more).execute(context())
    assert (done["last_batch"], done["events"]) == (4, 2)
    (job,) = service.jobs
    assert job.script.endswith("/apply_changes.py")
    assert job.arguments[:2] == ("--changelog", f"{tmp_path}/changelog")
    assert job.arguments[job.arguments.index("--threads") + 1] == "3"
    assert job.conf == {"spark.driver.memory": "2g", "spark.x": "true"}
    assert job.packages[0].startswith("io.delta:")
    assert job.environment == {"AWS_REGION": "eu-1"}


@pytest.mark.parametrize("stage", ["failed", "cancelled"])
def test_the_report_of_a_run_that_has_failed_names_the_tables(tmp_path: Path, service: Service, stage: Any) -> None:
    service.stages, service.report = [JobStatus(stage, "exit code 1")], report(**{"shop.b": "the disk is full"})
    with pytest.raises(AirflowException, match=r"shop\.b: the disk is full"):
        apply(tmp_path, service).execute(context())


def test_a_run_without_a_report_fails_with_the_reason_of_the_service(tmp_path: Path, service: Service) -> None:
    service.stages, service.report = [JobStatus("failed", "no such image", "https://spark/run-1")], None
    with pytest.raises(AirflowException, match="on Service has failed: no such image https://spark/run-1"):
        apply(tmp_path, service).execute(context())


def test_the_report_of_a_driver_that_has_failed_in_a_cluster_is_read(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(operator: Any, given: Any) -> None:  # as SparkSubmitOperator does there, which raises no error of Airflow
        service.reports.write(report(**{"shop.b": "the disk is full"}))  # type: ignore[arg-type]
        raise RuntimeError("Driver driver-1 exited with status FAILED")

    connect(
        monkeypatch, "spark_default", conn_type="spark", host="spark://cluster:7077", extra={"deploy-mode": "cluster"}
    )
    monkeypatch.setattr(SparkSubmitOperator, "execute", fail)
    task = apply(tmp_path, "spark-submit")
    assert task.durable is False
    with pytest.raises(AirflowException, match=r"shop\.b: the disk is full"):
        task.execute(context())


def test_an_answer_that_is_lost_starts_no_second_run(tmp_path: Path, service: Service) -> None:
    service.lost_answers = 2
    apply(tmp_path, service).execute(context())
    assert len(service.jobs) == 3
    assert list(service.runs.values()) == ["run-1"]
    apply(tmp_path, service).execute(context(try_number=2))
    assert list(service.runs.values()) == ["run-1", "run-2"]  # the next try submits its own


def test_a_service_that_is_out_of_reach_for_a_while_does_not_fail_the_task(tmp_path: Path, service: Service) -> None:
    service.stages = [
        JobStatus("running"),
        TimeoutError("timed out"),
        ConnectionError("refused"),
        JobStatus("succeeded"),
    ]
    assert apply(tmp_path, service).execute(context())["events"] == 2


def test_a_service_that_stays_out_of_reach_fails_the_task(tmp_path: Path, service: Service) -> None:
    service.patience, service.report = 0.0, None
    service.stages = [TimeoutError("timed out")] * 9
    with pytest.raises(AirflowException, match="its end is unknown: timed out"):
        apply(tmp_path, service).execute(context())


def test_a_service_that_rejects_a_job_is_asked_once(tmp_path: Path, service: Service) -> None:
    service.submit = _reject  # type: ignore[method-assign]
    with pytest.raises(AirflowException, match=r"was not submitted.*no right to submit"):
        apply(tmp_path, service).execute(context())


def _reject(job: SparkJob) -> str:
    raise PermissionError("no right to submit")


def test_a_killed_task_cancels_its_run(tmp_path: Path, service: Service) -> None:
    service.stages, service.report = [JobStatus("running")] * 1000, None
    task, errors = apply(tmp_path, service), list[Exception]()

    def execute() -> None:
        try:
            task.execute(context())
        except AirflowException as e:
            errors.append(e)

    thread = threading.Thread(target=execute)
    thread.start()
    while len(service.stages) > 990:
        time.sleep(0.01)
    task.on_kill()
    thread.join(20)
    assert service.cancelled == ["run-1"]
    assert "has cancelled: a user has cancelled it" in str(errors)


def test_secrets_are_in_no_text_of_the_job(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    connect(monkeypatch, "lake", conn_type="generic", extra={"key": "sesame"})
    apply(tmp_path, service, storage_conn_id="lake").execute(context())
    (job,) = service.jobs
    assert "sesame" in job.secret_environment["CDC_STORAGE_OPTIONS"]
    assert "sesame" not in f"{job} {job.to_document()} {job.format_command()}" + "".join(capfd.readouterr())
    assert job.to_document()["secret_environment"] == ["CDC_STORAGE_OPTIONS"]


def test_secrets_among_settings_are_rejected(tmp_path: Path, service: Service) -> None:
    task = apply(tmp_path, service, env_vars={"AWS_SECRET_ACCESS_KEY": "sesame"})
    with pytest.raises(
        AirflowFailException, match=r"in the specification of the job of Service: env_vars\[AWS_SEC"
    ) as e:
        task.execute(context())
    assert "sesame" not in str(e.value)
    assert not service.jobs


def test_secrets_among_the_parameters_of_a_platform_are_rejected(tmp_path: Path) -> None:
    cluster = {"spark_conf": {"fs.s3a.secret.key": "sesame"}, "spark_env_vars": {"A_PASSWORD": "{{secrets/a/b}}"}}
    task = apply(tmp_path, {"platform": "databricks", "application_uri": "s3://lake/cdc", "new_cluster": cluster})
    with pytest.raises(AirflowFailException, match=r"submit\[new_cluster\.spark_conf\.fs\.s3a\.secret\.key\]\.") as e:
        task.execute(context())
    assert "sesame" not in str(e.value)
    assert "A_PASSWORD" not in str(e.value)


@pytest.mark.parametrize(
    ("submit", "more", "message"),
    [
        ("spork", {}, r"submit='spork' is not known[\s\S]*spark-submit"),
        ({"platform": "spark-submit", "x": 1}, {}, "no parameters here"),
        ("connect", {}, "a client of Spark Connect has none"),
        (object(), {}, "has no methods submit, inspect and cancel"),
    ],
)
def test_a_way_to_submit_that_cannot_be_used_is_an_error(tmp_path: Path, submit: Any, more: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply(tmp_path, submit, **more)


def test_arguments_that_only_spark_submit_knows_are_rejected_elsewhere(tmp_path: Path, service: Service) -> None:
    with pytest.raises(ConfigError, match="keytab, deploy_mode has no effect with submit=Service"):
        apply(tmp_path, service, keytab="/k", deploy_mode="cluster")


def test_a_job_that_reports_to_a_local_file_is_not_sent_to_a_service(tmp_path: Path, service: Service) -> None:
    definition = ConnectorDefinition("shop", "mariadb", f"{tmp_path}/changelog", {}, {})
    with pytest.raises(ConfigError, match="cannot use submit=Service"):
        ApplyToDatabaseOnSparkOperator(task_id="a", definition=definition, database_conn_id="w", submit=service)


# -- in the triggerer -------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class DeferrableService(Platform):
    """A stand-in of a platform: it hands over to the service of the test."""

    NAME, REQUIRED, PROVIDER, EXTRA, SECRETS = "stand-in", (), "", "", "use a role"
    service: ClassVar[Service]

    def submit(self, job: SparkJob) -> str:
        return self.service.submit(job)

    def inspect(self, run: str) -> JobStatus:
        return self.service.inspect(run)

    def cancel(self, run: str) -> None:
        self.service.cancel(run)


DEFERRED = {"platform": "stand-in", "deferrable": True, "poll_interval": 0.01}


@pytest.fixture
def deferred(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(submit_platforms, "load_platform", lambda name: DeferrableService)
    DeferrableService.service = service
    return service


def wait_in_triggerer(deferral: TaskDeferred) -> dict[str, Any]:
    """The event of the trigger, after it has moved to another triggerer."""
    path, arguments = deferral.trigger.serialize()
    assert path == "airflow_provider_cdc.triggers.spark_job.SparkJobTrigger"
    trigger = SparkJobTrigger(**json.loads(json.dumps(arguments)))

    async def first() -> dict[str, Any]:
        async for event in trigger.run():
            return dict(event.payload)
        raise AssertionError("no event")

    return asyncio.run(first())


def test_the_triggerer_waits_for_the_job_and_the_task_reads_its_report(tmp_path: Path, deferred: Service) -> None:
    deferred.stages = [JobStatus("running"), ConnectionError("refused"), JobStatus("succeeded")]
    with pytest.raises(TaskDeferred) as deferral:
        apply(tmp_path, DEFERRED).execute(context())
    event = wait_in_triggerer(deferral.value)
    assert event["stage"] == "succeeded"
    kwargs = json.loads(json.dumps(deferral.value.kwargs))
    done = apply(tmp_path, DEFERRED).resume(context(), event, **kwargs)
    assert (done["last_batch"], done["events"]) == (4, 2)
    assert len(deferred.jobs) == 1


def test_a_job_that_fails_while_the_triggerer_waits_fails_the_task(tmp_path: Path, deferred: Service) -> None:
    deferred.reports.write({**report(), "owner": "an earlier run"})  # type: ignore[typeddict-item]
    deferred.stages, deferred.report = [JobStatus("failed", "no such image")], None
    with pytest.raises(TaskDeferred) as deferral:
        apply(tmp_path, DEFERRED).execute(context())
    event = wait_in_triggerer(deferral.value)
    given = context()
    with pytest.raises(AirflowException, match="on stand-in has failed: no such image"):
        apply(tmp_path, DEFERRED).resume(given, event, **deferral.value.kwargs)


def test_a_service_that_stays_out_of_reach_ends_the_wait(tmp_path: Path, deferred: Service) -> None:
    deferred.stages, deferred.report = [TimeoutError("timed out")] * 99, None
    with pytest.raises(TaskDeferred) as deferral:
        apply(tmp_path, {**DEFERRED, "patience": 0.0}).execute(context())
    event = wait_in_triggerer(deferral.value)
    assert event == {"error": "TimeoutError: timed out"}
    with pytest.raises(AirflowException, match="timed out"):
        apply(tmp_path, DEFERRED).resume(context(), event, **deferral.value.kwargs)


def test_a_user_who_ends_a_deferred_task_cancels_its_run(tmp_path: Path, deferred: Service) -> None:
    with pytest.raises(TaskDeferred) as deferral:
        apply(tmp_path, DEFERRED).execute(context())
    asyncio.run(deferral.value.trigger.on_kill())
    assert deferred.cancelled == ["run-1"]
