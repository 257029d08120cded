"""Runs jobs on Databricks, as one-time runs of the Jobs API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.submit.platform import INSTALLED, Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob

_OWN = ("io.delta:",)
"""Packages that the runtime of Databricks has in its own build."""

_REFERENCE = re.compile(r"secrets/[^/{}\s]+/[^/{}\s]+")
_WAITING = ("PENDING", "QUEUED", "BLOCKED", "WAITING_FOR_RETRY")
_FINAL = ("TERMINATED", "SKIPPED", "INTERNAL_ERROR")


@dataclass(kw_only=True)
class Databricks(Platform):
    """Submits a one-time run to Databricks.

    :param conn_id: Airflow connection to Databricks
    :param existing_cluster_id: a cluster that runs; its settings and its environment are those of the cluster
    :param new_cluster: specification of a job cluster, as of the Jobs API
    :param run: further fields of ``jobs/runs/submit``, such as ``timeout_seconds`` and ``access_control_list``
    """

    NAME = "databricks"
    PROVIDER, EXTRA = "apache-airflow-providers-databricks", "databricks"
    HOOK = "airflow.providers.databricks.hooks.databricks.DatabricksHook"
    TAKES_REFERENCES = True
    SECRETS = (
        "store the JSON object in a secret scope, and name it: "
        'submit={{"platform": "{platform}", "secret_environment": {{"{name}": "secrets/<scope>/<key>"}}, …}}; '
        "or let the cluster's instance profile or Unity Catalog access the storage"
    )
    PACKAGE = "airflow_provider_cdc-*.whl"

    conn_id: str = "databricks_default"
    existing_cluster_id: str = ""
    new_cluster: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Start the run. Databricks returns the same run for the same token."""
        request = self.build_run(job)
        return str(self._hook().submit_run(request))

    def build_run(self, job: SparkJob) -> dict[str, Any]:
        """Return the body of ``jobs/runs/submit``.

        :raises ConfigError: there is no cluster, or a running cluster cannot take the settings of the job
        """
        references = self._build_references(job)
        packages = [package for package in job.packages if not package.startswith(_OWN)]
        libraries: list[dict[str, Any]] = [] if self.wheel_uri == INSTALLED else [{"whl": self.package_uri()}]
        libraries += [{"maven": {"coordinates": package}} for package in packages]
        libraries += [{PurePosixPath(uri).suffix.lstrip(".") or "jar": uri} for uri in (*job.jars, *job.py_files)]
        task = {
            "task_key": "cdc", "libraries": libraries, **self._cluster(job, references),
            "spark_python_task": {"python_file": self.script_uri(job), "parameters": list(job.arguments)},
        }  # fmt: skip
        return {"run_name": job.name, "idempotency_token": job.token, **self.run, "tasks": [task]}

    def _build_references(self, job: SparkJob) -> dict[str, str]:
        """Return the references to secrets as Databricks takes them. Braces are added here: those of a field would be a template of Airflow.

        :raises ConfigError: one is missing, or is no reference
        """
        references = {}
        for name, reference in self.secret_references(job).items():
            path = str(reference).removeprefix("{{").removesuffix("}}").strip()
            if not _REFERENCE.fullmatch(path):
                raise ConfigError(
                    f"secret_environment[{name}] is no reference to a secret scope.",
                    safe="Nothing was submitted.",
                    remedy="write secrets/<scope>/<key>",
                )
            references[name] = f"{{{{{path}}}}}"
        return references

    def _cluster(self, job: SparkJob, references: Mapping[str, Any]) -> dict[str, Any]:
        environment = {**job.environment, **references}
        if self.existing_cluster_id:
            if job.conf or environment:
                given = ", ".join([*job.conf, *environment])
                raise ConfigError(
                    f"A running cluster of Databricks takes no settings from a job: {given}.",
                    safe="Nothing was submitted.",
                    remedy="set them in the cluster, and omit them here; or use new_cluster",
                )
            return {"existing_cluster_id": self.existing_cluster_id}
        if not self.new_cluster:
            raise ConfigError(
                "submit: databricks needs existing_cluster_id or new_cluster.",
                safe="Nothing was submitted.",
                remedy='write submit={"platform": "databricks", "existing_cluster_id": …}',
            )
        cluster = dict(self.new_cluster)
        conf = {**cluster.get("spark_conf", {}), **job.conf}
        variables = {**cluster.get("spark_env_vars", {}), **environment}
        return {"new_cluster": {**cluster, "spark_conf": conf, "spark_env_vars": variables}}

    def package_uri(self) -> str:
        """Return the URI of the wheel. Its name has the version of this package."""
        from airflow_provider_cdc.services.submit.spark_files import wheel_name

        return super().package_uri().replace(self.PACKAGE, wheel_name())

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the run."""
        found = self._hook().get_run(int(run))
        state, url = found["state"], found.get("run_page_url") or ""
        life, result, message = (
            state["life_cycle_state"],
            state.get("result_state") or "",
            state.get("state_message") or "",
        )
        if life not in _FINAL:
            return JobStatus("pending" if life in _WAITING else "running", message, url)
        if result == "SUCCESS":
            return JobStatus("succeeded", message, url)
        return JobStatus("cancelled" if result == "CANCELED" else "failed", f"{life} {result} {message}".strip(), url)

    def cancel(self, run: str) -> None:
        """Cancel the run."""
        self._hook().cancel_run(int(run))

    def _hook(self) -> Any:
        # its own attempts would hide a service that is out of reach from the patience of this package
        return self.load_hook()(databricks_conn_id=self.conn_id, retry_limit=1, caller="AirflowProviderCdc")
