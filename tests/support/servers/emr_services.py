"""EMR Serverless, EMR clusters and EMR on EKS, by moto's server.

moto runs no job, and cannot cancel a step. With :func:`run_jobs` the states of its runs and steps are those of real processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from tests.support.airflow.airflow_connector import connect
from tests.support.servers.spark_runs import Command, Program, Run

ACCOUNT, REGION, ROLE = "123456789012", "eu-central-1", "arn:aws:iam::123456789012:role/cdc"


@contextmanager
def open_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start moto's server, make the connection ``aws_default``, and return the server's URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": url,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    connect(monkeypatch, "aws_default", conn_type="aws", extra={"endpoint_url": url, "region_name": REGION})
    try:
        yield url
    finally:
        server.stop()


def create_parameters(platform: str, url: str) -> dict[str, Any]:
    """Create an application or a cluster, and return the parameters of the platform that name it."""
    if platform == "emr-serverless":
        serverless = boto3.client("emr-serverless", endpoint_url=url)
        application = serverless.create_application(name="cdc", releaseLabel="emr-7.9.0", type="SPARK")
        return {"application_id": application["applicationId"], "role": ROLE}
    if platform == "emr-steps":
        return {"cluster_id": _create_cluster(url)}
    return {"virtual_cluster_id": _create_virtual_cluster(url), "role": ROLE, "release": "emr-7.9.0-latest"}


def _create_cluster(url: str) -> str:
    """Create a cluster that waits for steps, and return its id."""
    instances = {
        "MasterInstanceType": "m5.xlarge", "SlaveInstanceType": "m5.xlarge", "InstanceCount": 2, "KeepJobFlowAliveWhenNoSteps": True,
    }  # fmt: skip
    client = boto3.client("emr", endpoint_url=url)
    cluster = client.run_job_flow(
        Name="c", Instances=instances, JobFlowRole="r", ServiceRole="r", ReleaseLabel="emr-7.9.0"
    )
    return str(cluster["JobFlowId"])


def _create_virtual_cluster(url: str) -> str:
    """Create a virtual cluster of EMR on EKS, and return its id."""
    from moto.eks.models import eks_backends
    from moto.emrcontainers.models import emrcontainers_backends

    if "k8s" not in eks_backends[ACCOUNT][REGION].clusters:
        boto3.client("eks", endpoint_url=url).create_cluster(name="k8s", roleArn=ROLE, resourcesVpcConfig={})
    # a namespace belongs to one virtual cluster
    namespace = f"spark-{emrcontainers_backends[ACCOUNT][REGION].virtual_cluster_count}"
    provider = {"id": "k8s", "type": "EKS", "info": {"eksInfo": {"namespace": namespace}}}
    client = boto3.client("emr-containers", endpoint_url=url)
    return str(client.create_virtual_cluster(name="cdc", containerProvider=provider)["id"])


# -- runs ---------------------------------------------------------------------------------------------------------------


def run_jobs(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    """Run the jobs of all three services as processes, each from the first look at its state on."""
    from moto.emr.models import Step
    from moto.emr.responses import ElasticMapReduceResponse
    from moto.emrcontainers.models import JobRun as ContainerRun
    from moto.emrserverless.models import JobRun as ServerlessRun

    names = {"running": "RUNNING", "failed": "FAILED", "succeeded": "COMPLETED", "cancelled": "CANCELLED"}
    serverless = _state({**names, "succeeded": "SUCCESS"}, _program_of_run("sparkSubmit"), command)
    monkeypatch.setattr(ServerlessRun, "state", serverless, raising=False)
    monkeypatch.setattr(
        ContainerRun, "state", _state(names, _program_of_run("sparkSubmitJobDriver"), command), raising=False
    )
    monkeypatch.setattr(Step, "state", _state(names, _program_of_step, command), raising=False)
    monkeypatch.setattr(ElasticMapReduceResponse, "cancel_steps", _cancel_steps, raising=False)


def _state(names: Mapping[str, str], program_of: Callable[[Any], Program], command: Command) -> property:
    """Return the state of moto's object: that of its process. Only a cancellation changes it."""

    def run_of(found: Any) -> Run:
        if not hasattr(found, "cdc_run"):
            found.cdc_run = Run(program_of(found), command)
        return found.cdc_run  # type: ignore[no-any-return]

    def set_state(found: Any, state: str) -> None:
        if state == "CANCELLED":
            run_of(found).cancel()

    return property(lambda found: names[run_of(found).inspect()], set_state)


def _program_of_run(driver: str) -> Callable[[Any], Program]:
    def program_of(run: Any) -> Program:
        given = run.job_driver[driver]
        (defaults,) = run.configuration_overrides["applicationConfiguration"]
        return Program(given["entryPoint"], given["entryPointArguments"], conf=defaults["properties"])

    return program_of


def _program_of_step(step: Any) -> Program:
    """Return the program of a step, whose command is that of ``spark-submit`` in cluster mode."""
    words = list(step.args)
    script = next(number for number, word in enumerate(words) if word.endswith(".py"))
    assert words[:3] == ["spark-submit", "--deploy-mode", "cluster"]
    return Program(words[script], words[script + 1 :], options=words[3:script])


def _cancel_steps(response: Any) -> Any:
    from moto.core.responses import ActionResult

    ids = response._get_param("StepIds", [])
    for step in response.backend.clusters[response._get_param("ClusterId")].steps:
        if step.id in ids:
            step.state = "CANCELLED"
    return ActionResult({"CancelStepsInfoList": [{"StepId": found, "Status": "SUBMITTED"} for found in ids]})
