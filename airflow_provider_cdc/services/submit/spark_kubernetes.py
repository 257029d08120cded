"""Runs jobs by the Spark operator of Kubernetes, as ``SparkApplication`` objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_cdc.services.submit.platform import KubernetesPlatform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_KIND = {"group": "sparkoperator.k8s.io", "version": "v1beta2", "plural": "sparkapplications"}
_STAGES: Mapping[str, Stage] = {
    "": "pending", "SUBMITTED": "pending", "PENDING_SUBMISSION": "pending", "COMPLETED": "succeeded", "FAILED": "failed",
    "SUBMISSION_FAILED": "failed",
}  # fmt: skip
_KEPT_S = 24 * 3600
"""Seconds for which the operator keeps an application that has ended."""


@dataclass(kw_only=True)
class SparkKubernetes(KubernetesPlatform):
    """Creates a ``SparkApplication``, which the Spark operator runs.

    :param namespace: of the application
    :param image: container image with Spark
    :param service_account: of the driver, with the right to create pods
    :param spark_version: of the image
    :param conn_id: Airflow connection to Kubernetes
    :param spec: further fields of ``spec``; mappings in it are merged: ``{"driver": {"cores": 2}, "executor": {"instances": 4}}``
    """

    NAME = "spark-kubernetes"
    REQUIRED = ("application_uri", "namespace", "image")
    PROVIDER, EXTRA = "apache-airflow-providers-cncf-kubernetes", "kubernetes"
    HOOK = "airflow.providers.cncf.kubernetes.hooks.kubernetes.KubernetesHook"

    namespace: str = ""
    image: str = ""
    service_account: str = "spark"
    spark_version: str = ""
    conn_id: str = "kubernetes_default"
    spec: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Create the application. One with the job's token in its name is this one."""
        hook = self._hook()
        body = self.build_application(job)
        try:
            hook.create_custom_object(**_KIND, body=body, namespace=self.namespace)
        except Exception as e:
            if getattr(e, "status", None) != 409:  # it exists: an answer was lost
                raise
        return str(body["metadata"]["name"])

    def build_application(self, job: SparkJob) -> dict[str, Any]:
        """Return the ``SparkApplication``."""
        dependencies = {
            "pyFiles": self.python_files(job),
            "files": list(job.files),
            "jars": list(job.jars),
            "packages": list(job.packages),
        }
        spec: dict[str, Any] = {
            "type": "Python", "pythonVersion": "3", "mode": "cluster", "image": self.image,
            "mainApplicationFile": self.script_uri(job), "arguments": list(job.arguments),
            "deps": {name: uris for name, uris in dependencies.items() if uris},
            "sparkConf": self.settings(replace(job, jars=(), packages=())), "restartPolicy": {"type": "Never"},
            "timeToLiveSeconds": _KEPT_S, "driver": {"serviceAccount": self.service_account}, "executor": {},
        }  # fmt: skip
        if self.spark_version:
            spec["sparkVersion"] = self.spark_version
        for name, value in self.spec.items():
            spec[name] = {**spec.get(name, {}), **value} if isinstance(value, Mapping) else value
        return {
            "apiVersion": f"{_KIND['group']}/{_KIND['version']}", "kind": "SparkApplication",
            "metadata": {"name": _object_name(job), "namespace": self.namespace}, "spec": spec,
        }  # fmt: skip

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the application."""
        found = self._hook().get_custom_object(**_KIND, name=run, namespace=self.namespace)
        state = (found.get("status") or {}).get("applicationState") or {}
        return JobStatus(_STAGES.get(state.get("state", ""), "running"), state.get("errorMessage") or "")

    def cancel(self, run: str) -> None:
        """Delete the application, and its pods."""
        try:
            self._hook().delete_custom_object(**_KIND, name=run, namespace=self.namespace)
        except Exception as e:
            if getattr(e, "status", None) != 404:
                raise

    def _hook(self) -> Any:
        return self.load_hook()(conn_id=self.conn_id)


def _object_name(job: SparkJob) -> str:
    """Return the name of the object: a label of DNS, which has at most 63 characters."""
    label = re.sub(r"[^a-z0-9-]+", "-", job.name.lower()).strip("-")
    return f"{label[:40]}-{job.token[:16]}".strip("-")
