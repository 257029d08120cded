"""EMR Serverless, EMR steps and EMR on EKS, by the hooks of Airflow's provider, against moto's server.

moto runs no job: the test moves its runs from state to state. It knows no token, and cannot cancel a step; these two are requests that botocore checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.submit import build_platform
from airflow_provider_cdc.services.submit.job_runner import cancel_job, run_job, submit_job, wait_for_end
from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import SparkJob
from tests.support.servers.emr_services import ACCOUNT, REGION, ROLE, create_parameters, open_aws

pytest.importorskip("airflow.providers.amazon")
JOB = SparkJob(
    name="cdc-apply-shop", script="/x/apply_changes.py", arguments=("--changelog", "s3://lake/it's here", "--tables", '{"a": 1}'),
    packages=("io.delta:delta:1", "a:b:2"), conf={"spark.x": "1"}, environment={"LEVEL": "info"}, token="t" * 32,
)  # fmt: skip
DEFAULTS = {
    "spark.jars.packages": "io.delta:delta:1,a:b:2", "spark.x": "1", "spark.executorEnv.LEVEL": "info",
    "spark.submit.pyFiles": "s3://lake/cdc/airflow_provider_cdc.zip",
}  # fmt: skip


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with open_aws(monkeypatch) as url:
        yield url


def build(platform: str, **parameters: Any) -> Platform:
    built = build_platform(
        {"platform": platform, "application_uri": "s3://lake/cdc/", "poll_interval": 0.05, **parameters}
    )
    assert built is not None
    return built


@pytest.fixture
def serverless(aws: str) -> Platform:
    return build("emr-serverless", **create_parameters("emr-serverless", aws))


def runs_of(platform: Any) -> list[Any]:
    from moto.emrserverless.models import emrserverless_backends

    return emrserverless_backends[ACCOUNT][REGION].job_runs[platform.application_id]


def test_a_serverless_run_gets_the_job_and_its_states_are_reported(serverless: Platform) -> None:
    run = submit_job(serverless, JOB)
    (found,) = runs_of(serverless)
    found.state = "SCHEDULED"
    assert wait_for_end(serverless, run, timeout=0).stage == "pending"
    assert (found.execution_role_arn, found.client_token, found.name) == (ROLE, JOB.token, JOB.name)
    assert found.job_driver["sparkSubmit"] == {
        "entryPoint": "s3://lake/cdc/apply_changes.py", "entryPointArguments": list(JOB.arguments),
    }  # fmt: skip
    (defaults,) = found.configuration_overrides["applicationConfiguration"]
    assert defaults["properties"] == {**DEFAULTS, "spark.emr-serverless.driverEnv.LEVEL": "info"}
    for state, stage in {"RUNNING": "running", "SUCCESS": "succeeded", "FAILED": "failed"}.items():
        found.state = state
        assert serverless.inspect(run).stage == stage


def test_a_serverless_run_is_waited_for_and_can_be_cancelled(serverless: Platform) -> None:
    ended: list[str] = []
    started = threading.Event()
    runs: list[str] = []

    def remember(run: str) -> None:
        runs_of(serverless)[0].state = "RUNNING"  # moto begins with the end
        runs.append(run)
        started.set()

    thread = threading.Thread(target=lambda: ended.append(run_job(serverless, JOB, remember).stage))
    thread.start()
    assert started.wait(20)
    time.sleep(0.2)
    assert not ended
    cancel_job(serverless, runs[0])
    thread.join(20)
    assert ended == ["cancelled"]


def test_a_step_calls_spark_submit_in_the_cluster(aws: str) -> None:
    from moto.emr.models import emr_backends

    parameters = create_parameters("emr-steps", aws)
    cluster, steps = parameters["cluster_id"], build("emr-steps", **parameters)
    run = submit_job(steps, JOB)
    assert submit_job(steps, JOB) == run  # an answer was lost
    (step,) = (
        next(found for found in emr_backends[ACCOUNT].values() if cluster in found.clusters).clusters[cluster].steps
    )
    arguments = list(step.args)
    assert arguments[:3] == ["spark-submit", "--deploy-mode", "cluster"]
    assert arguments[-5:] == ["s3://lake/cdc/apply_changes.py", *JOB.arguments]
    assert "spark.yarn.appMasterEnv.LEVEL=info" in arguments
    assert arguments[arguments.index("--py-files") + 1] == "s3://lake/cdc/airflow_provider_cdc.zip"
    for state, stage in {
        "PENDING": "pending",
        "RUNNING": "running",
        "COMPLETED": "succeeded",
        "FAILED": "failed",
    }.items():
        step.state = state
        assert steps.inspect(run).stage == stage


def test_a_step_is_cancelled_with_its_process(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.stub import Stubber

    client = boto3.client("emr", endpoint_url=aws)
    steps = build("emr-steps", cluster_id="j-1")
    monkeypatch.setattr(type(steps), "_client", lambda _: client)
    with Stubber(client) as stub:
        expected = {"ClusterId": "j-1", "StepIds": ["s-1"], "StepCancellationOption": "TERMINATE_PROCESS"}
        stub.add_response("cancel_steps", {"CancelStepsInfoList": [{"StepId": "s-1", "Status": "SUBMITTED"}]}, expected)
        steps.cancel("s-1")
        stub.assert_no_pending_responses()


def test_a_run_on_eks_gets_references_to_secrets_and_can_be_cancelled(aws: str) -> None:
    from moto.emrcontainers.models import emrcontainers_backends

    parameters = create_parameters("emr-eks", aws)
    job = SparkJob(**{**JOB.__dict__, "secret_environment": {"CDC_STORAGE_OPTIONS": '{"key": "sesame"}'}})
    with pytest.raises(ConfigError, match="storage options cannot be passed to emr-eks") as caught:
        submit_job(build("emr-eks", **parameters), job)
    assert '"CDC_STORAGE_OPTIONS": "<secret>:<key>"' in str(caught.value.remedy)
    platform = build("emr-eks", secret_environment={"CDC_STORAGE_OPTIONS": "cdc:storage"}, **parameters)
    run = submit_job(platform, job)
    found = emrcontainers_backends[ACCOUNT][REGION].job_runs[run]
    assert "sesame" not in str(found.__dict__)
    (defaults,) = found.configuration_overrides["applicationConfiguration"]
    assert defaults["properties"] == {
        **DEFAULTS, "spark.kubernetes.driverEnv.LEVEL": "info",
        "spark.kubernetes.driver.secretKeyRef.CDC_STORAGE_OPTIONS": "cdc:storage",
    }  # fmt: skip
    for state, stage in {
        "RUNNING": "running",
        "COMPLETED": "succeeded",
        "FAILED": "failed",
        "PENDING": "pending",
    }.items():
        found.state = state
        assert platform.inspect(run).stage == stage
    cancel_job(platform, run)
    assert platform.inspect(run).stage == "cancelled"


@pytest.mark.parametrize("platform", ["emr-serverless", "emr-steps"])
def test_storage_options_are_left_to_the_role(platform: str) -> None:
    parameters = {"cluster_id": "j-1"} if platform == "emr-steps" else {"application_id": "a", "role": ROLE}
    job = SparkJob(**{**JOB.__dict__, "secret_environment": {"CDC_STORAGE_OPTIONS": '{"key": "sesame"}'}})
    with pytest.raises(ConfigError) as caught:
        build(platform, **parameters).submit(job)
    assert "role" in str(caught.value.remedy)
    assert "sesame" not in str(caught.value)
