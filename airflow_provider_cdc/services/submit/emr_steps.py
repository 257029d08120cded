"""Runs jobs as steps of a running EMR cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "PENDING": "pending", "COMPLETED": "succeeded", "FAILED": "failed", "INTERRUPTED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class EmrSteps(Platform):
    """Adds a step to a running EMR cluster, which calls ``spark-submit`` in cluster mode.

    :param cluster_id: the cluster (job flow)
    :param conn_id: Airflow connection to AWS
    :param region: region of the cluster, by default the connection's
    :param role: ARN of a runtime role, if the cluster knows such roles
    """

    NAME = "emr-steps"
    REQUIRED = ("application_uri", "cluster_id")
    PROVIDER, EXTRA = "apache-airflow-providers-amazon", "amazon"
    SECRETS = "omit the options, and let the role of the cluster's instances access the storage"

    cluster_id: str = ""
    conn_id: str = "aws_default"
    region: str | None = None
    role: str = ""

    def submit(self, job: SparkJob) -> str:
        """Add the step. A step with the job's token in its name is this one."""
        step = self.build_step(job)
        client = self._client()
        # EMR has no token for steps: an answer may have been lost
        for page in client.get_paginator("list_steps").paginate(ClusterId=self.cluster_id):
            for found in page["Steps"]:
                if found["Name"] == step["Name"]:
                    return str(found["Id"])
        more = {"ExecutionRoleArn": self.role} if self.role else {}
        return str(client.add_job_flow_steps(JobFlowId=self.cluster_id, Steps=[step], **more)["StepIds"][0])

    def build_step(self, job: SparkJob) -> dict[str, Any]:
        """Return the step."""
        self.secret_references(job)
        environment = {
            f"{prefix}.{name}": value
            for name, value in job.environment.items()
            for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv")
        }
        settings = {**environment, **self.settings(job)}
        command = ["spark-submit", "--deploy-mode", "cluster", "--name", job.name]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command += ["--py-files", ",".join(self.python_files(job))]
        command += ["--files", ",".join(job.files)] if job.files else []
        return {
            "Name": f"{job.name}-{job.token}",
            "ActionOnFailure": "CONTINUE",
            "HadoopJarStep": {"Jar": "command-runner.jar", "Args": [*command, self.script_uri(job), *job.arguments]},
        }

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the step."""
        status = self._client().describe_step(ClusterId=self.cluster_id, StepId=run)["Step"]["Status"]
        details = status.get("FailureDetails") or {}
        reason = status.get("StateChangeReason") or {}
        text = " ".join(filter(None, [details.get("Reason"), details.get("Message"), reason.get("Message")]))
        return JobStatus(_STAGES.get(status["State"], "running"), text, details.get("LogFile") or "")

    def cancel(self, run: str) -> None:
        """Cancel the step, and end its process."""
        self._client().cancel_steps(
            ClusterId=self.cluster_id, StepIds=[run], StepCancellationOption="TERMINATE_PROCESS"
        )

    def _client(self) -> Any:
        try:
            from airflow.providers.amazon.aws.hooks.emr import EmrHook
        except ImportError as e:
            raise self.missing_provider(e) from e
        return EmrHook(aws_conn_id=self.conn_id, region_name=self.region).conn
