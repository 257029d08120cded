"""Runs jobs on Dataproc Serverless, as batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "STATE_UNSPECIFIED": "pending", "PENDING": "pending", "SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip


@dataclass(kw_only=True)
class DataprocBatch(Platform):
    """Creates a batch of Dataproc Serverless.

    :param region: region of the batch
    :param project_id: project, by default the connection's
    :param conn_id: Airflow connection to Google Cloud
    :param version: of the runtime, such as ``3.0``
    :param batch: further fields of the batch, such as ``environment_config``
    """

    NAME = "dataproc-batch"
    REQUIRED = ("application_uri", "region")
    PROVIDER, EXTRA = "apache-airflow-providers-google", "google"
    SECRETS = "omit the options, and let the service account of the batch access the storage; Dataproc shows each batch with its properties"

    region: str = ""
    project_id: str | None = None
    conn_id: str = "google_cloud_default"
    version: str = ""
    batch: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Create the batch. One with the job's token as its id is this one."""
        hook = self._hook()
        batch_id = f"cdc-{job.token}"
        try:
            hook.create_batch(
                region=self.region, project_id=self._project(hook), batch=self.build_batch(job), batch_id=batch_id
            )
        except Exception as e:
            if type(e).__name__ != "AlreadyExists":  # an answer was lost
                raise
        return batch_id

    def build_batch(self, job: SparkJob) -> dict[str, Any]:
        """Return the batch."""
        self.secret_references(job)
        environment = {
            f"{prefix}.{name}": value
            for name, value in job.environment.items()
            for prefix in ("spark.dataproc.driverEnv", "spark.executorEnv")
        }
        packages = {"spark.jars.packages": ",".join(job.packages)} if job.packages else {}
        runtime: dict[str, Any] = {"properties": {**packages, **environment, **job.conf}}
        if self.version:
            runtime["version"] = self.version
        program = {
            "main_python_file_uri": self.script_uri(job), "args": list(job.arguments), "python_file_uris": self.python_files(job),
            "jar_file_uris": list(job.jars), "file_uris": list(job.files),
        }  # fmt: skip
        return {"pyspark_batch": program, "runtime_config": runtime, "labels": {"airflow": "cdc"}, **self.batch}

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the batch."""
        hook = self._hook()
        batch = hook.get_batch(batch_id=run, region=self.region, project_id=self._project(hook))
        return JobStatus(_STAGES.get(batch.state.name, "running"), batch.state_message or "")

    def cancel(self, run: str) -> None:
        """Cancel the operation of the batch."""
        hook = self._hook()
        batch = hook.get_batch(batch_id=run, region=self.region, project_id=self._project(hook))
        hook.get_batch_client(self.region).cancel_operation({"name": batch.operation})

    def _project(self, hook: Any) -> str:
        return str(self.project_id or hook.project_id)

    def _hook(self) -> Any:
        try:
            from airflow.providers.google.cloud.hooks.dataproc import DataprocHook
        except ImportError as e:
            raise self.missing_provider(e) from e
        return DataprocHook(gcp_conn_id=self.conn_id)
