"""Runs jobs on EMR on EKS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "PENDING": "pending", "SUBMITTED": "pending", "COMPLETED": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class EmrEks(Platform):
    """Submits a job run to a virtual cluster of EMR on EKS.

    :param virtual_cluster_id: the virtual cluster
    :param role: ARN of the role of the job
    :param release: label of the EMR release, such as ``emr-7.9.0-latest``
    :param conn_id: Airflow connection to AWS
    :param region: region of the virtual cluster, by default the connection's
    :param monitoring: ``monitoringConfiguration`` of the run
    """

    NAME = "emr-eks"
    REQUIRED = ("application_uri", "virtual_cluster_id", "role", "release")
    PROVIDER, EXTRA = "apache-airflow-providers-amazon", "amazon"
    SECRETS = (
        "store the JSON object in a secret of the cluster's namespace, and name it: "
        'submit={{"platform": "emr-eks", "secret_environment": {{"{name}": "<secret>:<key>"}}, …}}; '
        "or omit the options, and let the role of the job access the storage"
    )

    virtual_cluster_id: str = ""
    role: str = ""
    release: str = ""
    conn_id: str = "aws_default"
    region: str | None = None
    monitoring: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Start the job run. AWS returns the same run for the same token."""
        request = self.build_run(job)
        return str(self._client().start_job_run(**request)["id"])

    def build_run(self, job: SparkJob) -> dict[str, Any]:
        """Return the request ``StartJobRun``."""
        references = {
            f"spark.kubernetes.driver.secretKeyRef.{name}": str(reference)
            for name, reference in self.secret_references(job).items()
        }
        environment = {
            f"{prefix}.{name}": value
            for name, value in job.environment.items()
            for prefix in ("spark.kubernetes.driverEnv", "spark.executorEnv")
        }
        files = {"spark.submit.pyFiles": ",".join(self.python_files(job)), "spark.files": ",".join(job.files)}
        properties = {**{name: value for name, value in files.items() if value}, **environment, **references}
        overrides: dict[str, Any] = {
            "applicationConfiguration": [
                {"classification": "spark-defaults", "properties": {**properties, **self.settings(job)}}
            ]
        }
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

    def _client(self) -> Any:
        try:
            from airflow.providers.amazon.aws.hooks.emr import EmrContainerHook
        except ImportError as e:
            raise self.missing_provider(e) from e
        # the hook takes a region only by its base class
        return EmrContainerHook(aws_conn_id=self.conn_id, region_name=self.region).conn
