"""Runs jobs on EMR: on EMR Serverless, as steps of a cluster, and on EKS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.services.submit.platform import KubernetesPlatform, Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "SUBMITTED": "pending", "PENDING": "pending", "SCHEDULED": "pending", "QUEUED": "pending", "SUCCESS": "succeeded",
    "COMPLETED": "succeeded", "FAILED": "failed", "INTERRUPTED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class EmrPlatform(Platform):
    """An account of AWS with EMR.

    :param conn_id: Airflow connection to AWS
    :param region: region of the application or the cluster, by default the connection's
    """

    PROVIDER, EXTRA = "apache-airflow-providers-amazon", "amazon"

    conn_id: str = "aws_default"
    region: str | None = None

    def build_overrides(self, job: SparkJob) -> dict[str, Any]:
        """Return the part of ``StartJobRun`` with the settings of Spark."""
        files = {"spark.submit.pyFiles": ",".join(self.python_files(job)), "spark.files": ",".join(job.files)}
        properties = {**{name: value for name, value in files.items() if value}, **self.settings(job)}
        return {"applicationConfiguration": [{"classification": "spark-defaults", "properties": properties}]}

    def _client(self) -> Any:
        return self.load_hook()(aws_conn_id=self.conn_id, region_name=self.region).conn


@dataclass(kw_only=True)
class EmrServerless(EmrPlatform):
    """Submits a job run to an application of EMR Serverless.

    :param application_id: the application, whose release has the Spark of the job's packages
    :param role: ARN of the role of the job
    :param log_uri: S3 prefix for the logs of the job
    :param run: further fields of ``StartJobRun``, such as ``executionTimeoutMinutes`` and ``tags``
    """

    NAME = "emr-serverless"
    REQUIRED = ("application_uri", "application_id", "role")
    HOOK = "airflow.providers.amazon.aws.hooks.emr.EmrServerlessHook"
    SECRETS = "omit the options, and let the role of the job access the storage"
    DRIVER_ENVIRONMENT = "spark.emr-serverless.driverEnv"

    application_id: str = ""
    role: str = ""
    log_uri: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Start the job run. AWS returns the same run for the same token."""
        request = self.build_run(job)
        answer = self._client().start_job_run(**request)
        return str(answer["jobRunId"])

    def build_run(self, job: SparkJob) -> dict[str, Any]:
        """Return the request ``StartJobRun``."""
        overrides = self.build_overrides(job)
        if self.log_uri:
            overrides["monitoringConfiguration"] = {"s3MonitoringConfiguration": {"logUri": self.log_uri}}
        return {
            "applicationId": self.application_id, "executionRoleArn": self.role, "name": job.name, "clientToken": job.token,
            "jobDriver": {"sparkSubmit": {"entryPoint": self.script_uri(job), "entryPointArguments": list(job.arguments)}},
            "configurationOverrides": overrides, **self.run,
        }  # fmt: skip

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the job run."""
        found = self._client().get_job_run(applicationId=self.application_id, jobRunId=run)["jobRun"]
        return JobStatus(_STAGES.get(found["state"], "running"), found.get("stateDetails") or "")

    def cancel(self, run: str) -> None:
        """Cancel the job run."""
        if self.inspect(run).active:
            self._client().cancel_job_run(applicationId=self.application_id, jobRunId=run)


@dataclass(kw_only=True)
class EmrSteps(EmrPlatform):
    """Adds a step to a running EMR cluster, which calls ``spark-submit`` in cluster mode.

    :param cluster_id: the cluster (job flow)
    :param role: ARN of a runtime role, if the cluster knows such roles
    """

    NAME = "emr-steps"
    REQUIRED = ("application_uri", "cluster_id")
    HOOK = "airflow.providers.amazon.aws.hooks.emr.EmrHook"
    SECRETS = "omit the options, and let the role of the cluster's instances access the storage"

    cluster_id: str = ""
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
        command = ["spark-submit", "--deploy-mode", "cluster", "--name", job.name]
        command += [part for name, value in self.settings(job).items() for part in ("--conf", f"{name}={value}")]
        for option, files in {"--py-files": self.python_files(job), "--files": job.files}.items():
            command += [option, ",".join(files)] if files else []
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


@dataclass(kw_only=True)
class EmrEks(KubernetesPlatform, EmrPlatform):
    """Submits a job run to a virtual cluster of EMR on EKS.

    :param virtual_cluster_id: the virtual cluster
    :param role: ARN of the role of the job
    :param release: label of the EMR release, such as ``emr-7.9.0-latest``
    :param monitoring: ``monitoringConfiguration`` of the run
    """

    NAME = "emr-eks"
    REQUIRED = ("application_uri", "virtual_cluster_id", "role", "release")
    HOOK = "airflow.providers.amazon.aws.hooks.emr.EmrContainerHook"

    virtual_cluster_id: str = ""
    role: str = ""
    release: str = ""
    monitoring: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Start the job run. AWS returns the same run for the same token."""
        request = self.build_run(job)
        return str(self._client().start_job_run(**request)["id"])

    def build_run(self, job: SparkJob) -> dict[str, Any]:
        """Return the request ``StartJobRun``."""
        overrides = self.build_overrides(job)
        if self.monitoring:
            overrides["monitoringConfiguration"] = dict(self.monitoring)
        return {
            "name": job.name, "virtualClusterId": self.virtual_cluster_id, "clientToken": job.token, "executionRoleArn": self.role,
            "releaseLabel": self.release, "configurationOverrides": overrides,
            "jobDriver": {"sparkSubmitJobDriver": {"entryPoint": self.script_uri(job), "entryPointArguments": list(job.arguments)}},
        }  # fmt: skip

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the job run."""
        found = self._client().describe_job_run(virtualClusterId=self.virtual_cluster_id, id=run)["jobRun"]
        text = " ".join(filter(None, [found.get("failureReason"), found.get("stateDetails")]))
        return JobStatus(_STAGES.get(found["state"], "running"), text)

    def cancel(self, run: str) -> None:
        """Cancel the job run."""
        if self.inspect(run).active:
            self._client().cancel_job_run(virtualClusterId=self.virtual_cluster_id, id=run)
