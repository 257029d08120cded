"""Runs jobs on EMR Serverless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "SUBMITTED": "pending", "PENDING": "pending", "SCHEDULED": "pending", "QUEUED": "pending", "SUCCESS": "succeeded",
    "FAILED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class EmrServerless(Platform):
    """Submits a job run to an application of EMR Serverless.

    :param application_id: the application, whose release has the Spark of the job's packages
    :param role: ARN of the role of the job
    :param conn_id: Airflow connection to AWS
    :param region: region of the application, by default the connection's
    :param log_uri: S3 prefix for the logs of the job
    :param run: further fields of ``StartJobRun``, such as ``executionTimeoutMinutes`` and ``tags``
    """

    NAME = "emr-serverless"
    REQUIRED = ("application_uri", "application_id", "role")
    PROVIDER, EXTRA = "apache-airflow-providers-amazon", "amazon"
    SECRETS = "omit the options, and let the role of the job access the storage"

    application_id: str = ""
    role: str = ""
    conn_id: str = "aws_default"
    region: str | None = None
    log_uri: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Start the job run. AWS returns the same run for the same token."""
        request = self.build_run(job)
        answer = self._client().start_job_run(**request)
        return str(answer["jobRunId"])

    def build_run(self, job: SparkJob) -> dict[str, Any]:
        """Return the request ``StartJobRun``."""
        self.secret_references(job)
        environment = {
            f"{prefix}.{name}": value
            for name, value in job.environment.items()
            for prefix in ("spark.emr-serverless.driverEnv", "spark.executorEnv")
        }
        files = {"spark.submit.pyFiles": ",".join(self.python_files(job)), "spark.files": ",".join(job.files)}
        properties = {**{name: value for name, value in files.items() if value}, **environment, **self.settings(job)}
        overrides: dict[str, Any] = {
            "applicationConfiguration": [{"classification": "spark-defaults", "properties": properties}]
        }
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

    def _client(self) -> Any:
        try:
            from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook
        except ImportError as e:
            raise self.missing_provider(e) from e
        return EmrServerlessHook(aws_conn_id=self.conn_id, region_name=self.region).conn
