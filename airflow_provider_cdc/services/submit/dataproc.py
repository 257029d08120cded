"""Runs jobs on Dataproc: as batches of Dataproc Serverless, and as jobs of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "STATE_UNSPECIFIED": "pending", "PENDING": "pending", "SETUP_DONE": "pending", "SUCCEEDED": "succeeded", "DONE": "succeeded",
    "FAILED": "failed", "ERROR": "failed", "ATTEMPT_FAILURE": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class DataprocPlatform(Platform):
    """A project of Google Cloud with Dataproc.

    :param region: region of the batch or the cluster
    :param project_id: project, by default the connection's
    :param conn_id: Airflow connection to Google Cloud
    """

    PROVIDER, EXTRA = "apache-airflow-providers-google", "google"
    HOOK = "airflow.providers.google.cloud.hooks.dataproc.DataprocHook"
    SECRETS = "omit the options, and let the service account of the job access the storage; Dataproc shows each job with its properties"

    region: str = ""
    project_id: str | None = None
    conn_id: str = "google_cloud_default"

    def submit(self, job: SparkJob) -> str:
        """Start the job. One with the job's token in its id is this one."""
        name = f"cdc-{job.token}"
        try:
            self._start(self._hook(), job, name)
        except Exception as e:
            if type(e).__name__ != "AlreadyExists":  # an answer was lost
                raise
        return name

    def build_program(self, job: SparkJob) -> dict[str, Any]:
        """Return the program of a batch or a job."""
        return {
            "main_python_file_uri": self.script_uri(job), "args": list(job.arguments), "python_file_uris": self.python_files(job),
            "jar_file_uris": list(job.jars), "file_uris": list(job.files),
        }  # fmt: skip

    def build_properties(self, job: SparkJob) -> dict[str, str]:
        """Return the settings of Spark; the program has the jars."""
        return self.settings(replace(job, jars=()))

    def _start(self, hook: Any, job: SparkJob, name: str) -> None:
        raise NotImplementedError

    def _place(self, hook: Any) -> dict[str, str]:
        """Return the arguments of all requests."""
        return {"region": self.region, "project_id": str(self.project_id or hook.project_id)}

    def _hook(self) -> Any:
        return self.load_hook()(gcp_conn_id=self.conn_id)


@dataclass(kw_only=True)
class DataprocBatch(DataprocPlatform):
    """Creates a batch of Dataproc Serverless.

    :param version: of the runtime, such as ``3.0``
    :param batch: further fields of the batch, such as ``environment_config``
    """

    NAME = "dataproc-batch"
    REQUIRED = ("application_uri", "region")
    DRIVER_ENVIRONMENT = "spark.dataproc.driverEnv"

    version: str = ""
    batch: Mapping[str, Any] = field(default_factory=dict)

    def build_batch(self, job: SparkJob) -> dict[str, Any]:
        """Return the batch."""
        version = {"version": self.version} if self.version else {}
        return {
            "pyspark_batch": self.build_program(job), "runtime_config": {**version, "properties": self.build_properties(job)},
            "labels": {"airflow": "cdc"}, **self.batch,
        }  # fmt: skip

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the batch."""
        batch = self._find(self._hook(), run)
        return JobStatus(_STAGES.get(batch.state.name, "running"), batch.state_message or "")

    def cancel(self, run: str) -> None:
        """Cancel the operation of the batch."""
        hook = self._hook()
        operation = self._find(hook, run).operation
        hook.get_batch_client(self.region).cancel_operation({"name": operation})

    def _start(self, hook: Any, job: SparkJob, name: str) -> None:
        hook.create_batch(batch=self.build_batch(job), batch_id=name, **self._place(hook))

    def _find(self, hook: Any, run: str) -> Any:
        return hook.get_batch(batch_id=run, **self._place(hook))


@dataclass(kw_only=True)
class DataprocJob(DataprocPlatform):
    """Submits a job to a Dataproc cluster.

    :param cluster_name: the cluster
    """

    NAME = "dataproc-job"
    REQUIRED = ("application_uri", "cluster_name", "region")

    cluster_name: str = ""

    def build_job(self, job: SparkJob, name: str) -> dict[str, Any]:
        """Return the job of Dataproc.

        :param name: its id
        """
        return {
            "reference": {"project_id": self.project_id or "", "job_id": name}, "placement": {"cluster_name": self.cluster_name},
            "pyspark_job": {**self.build_program(job), "properties": self.build_properties(job)}, "labels": {"airflow": "cdc"},
        }  # fmt: skip

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the job."""
        hook = self._hook()
        status = hook.get_job(job_id=run, **self._place(hook)).status
        return JobStatus(_STAGES.get(status.state.name, "running"), status.details or "")

    def cancel(self, run: str) -> None:
        """Cancel the job."""
        hook = self._hook()
        hook.cancel_job(job_id=run, **self._place(hook))

    def _start(self, hook: Any, job: SparkJob, name: str) -> None:
        hook.submit_job(job=self.build_job(job, name), **self._place(hook))
