"""Runs jobs on a Dataproc cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "STATE_UNSPECIFIED": "pending", "PENDING": "pending", "SETUP_DONE": "pending", "DONE": "succeeded", "ERROR": "failed",
    "ATTEMPT_FAILURE": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class DataprocJob(Platform):
    """Submits a job to a Dataproc cluster.

    :param cluster_name: the cluster
    :param region: region of the cluster
    :param project_id: project, by default the connection's
    :param conn_id: Airflow connection to Google Cloud
    """

    NAME = "dataproc-job"
    REQUIRED = ("application_uri", "cluster_name", "region")
    PROVIDER, EXTRA = "apache-airflow-providers-google", "google"
    SECRETS = "omit the options, and let the service account of the cluster access the storage; Dataproc shows each job with its properties"

    cluster_name: str = ""
    region: str = ""
    project_id: str | None = None
    conn_id: str = "google_cloud_default"

    def submit(self, job: SparkJob) -> str:
        """Submit the job. One with the job's token as its id is this one."""
        hook = self._hook()
        document = self.build_job(job)
        try:
            hook.submit_job(job=document, project_id=self._project(hook), region=self.region)
        except Exception as e:
            if type(e).__name__ != "AlreadyExists":  # an answer was lost
                raise
        return str(document["reference"]["job_id"])

    def build_job(self, job: SparkJob) -> dict[str, Any]:
        """Return the job of Dataproc."""
        self.secret_references(job)
        environment = {
            f"{prefix}.{name}": value
            for name, value in job.environment.items()
            for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv")
        }
        packages = {"spark.jars.packages": ",".join(job.packages)} if job.packages else {}
        program = {
            "main_python_file_uri": self.script_uri(job), "args": list(job.arguments), "python_file_uris": self.python_files(job),
            "jar_file_uris": list(job.jars), "file_uris": list(job.files), "properties": {**packages, **environment, **job.conf},
        }  # fmt: skip
        return {
            "reference": {"project_id": self.project_id or "", "job_id": f"cdc-{job.token}"},
            "placement": {"cluster_name": self.cluster_name}, "pyspark_job": program, "labels": {"airflow": "cdc"},
        }  # fmt: skip

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the job."""
        hook = self._hook()
        found = hook.get_job(job_id=run, project_id=self._project(hook), region=self.region)
        return JobStatus(_STAGES.get(found.status.state.name, "running"), found.status.details or "")

    def cancel(self, run: str) -> None:
        """Cancel the job."""
        hook = self._hook()
        hook.cancel_job(job_id=run, project_id=self._project(hook), region=self.region)

    def _project(self, hook: Any) -> str:
        return str(self.project_id or hook.project_id)

    def _hook(self) -> Any:
        try:
            from airflow.providers.google.cloud.hooks.dataproc import DataprocHook
        except ImportError as e:
            raise self.missing_provider(e) from e
        return DataprocHook(gcp_conn_id=self.conn_id)
