"""Runs jobs by Apache Livy, as batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob, Stage

_STAGES: Mapping[str, Stage] = {
    "not_started": "pending", "starting": "pending", "recovering": "pending", "success": "succeeded", "error": "failed",
    "dead": "failed", "killed": "cancelled",
}  # fmt: skip
_PAGE = 100


@dataclass(kw_only=True)
class Livy(Platform):
    """Submits a batch to Livy.

    :param conn_id: Airflow connection to Livy
    :param proxy_user: the user of the job
    :param queue: the queue of YARN
    :param options: further fields of Livy's ``POST /batches``, such as ``driverMemory``
    """

    NAME = "livy"
    PROVIDER, EXTRA = "apache-airflow-providers-apache-livy", "livy"
    HOOK = "airflow.providers.apache.livy.hooks.livy.LivyHook"
    SECRETS = "omit the options, and let the cluster's role or a Hadoop credential provider access the storage; Livy shows each batch with its settings"

    conn_id: str = "livy_default"
    proxy_user: str = ""
    queue: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, job: SparkJob) -> str:
        """Start the batch. A batch with the job's token in its name is this one."""
        body = self.build_batch(job)
        hook = self._hook()
        # Livy has no token: an answer may have been lost
        for batch in self._batches(hook):
            if batch.get("name") == body["name"]:
                return str(batch["id"])
        answer = self._request(hook, "POST", "", _format_json(body))
        answer.raise_for_status()
        return str(answer.json()["id"])

    def build_batch(self, job: SparkJob) -> dict[str, Any]:
        """Return the body of ``POST /batches``."""
        body = {
            "file": self.script_uri(job), "args": list(job.arguments), "name": f"{job.name}-{job.token}",
            "pyFiles": self.python_files(job), "files": list(job.files), "conf": self.settings(job),
            "proxyUser": self.proxy_user, "queue": self.queue, **self.options,
        }  # fmt: skip
        return {name: value for name, value in body.items() if value}

    def inspect(self, run: str) -> JobStatus:
        """Return the status of the batch, with the end of its log if it has failed."""
        answer = self._request(self._hook(), "GET", f"/{run}")
        answer.raise_for_status()
        batch = answer.json()
        stage = _STAGES.get(batch["state"], "running")
        page = (batch.get("appInfo") or {}).get("sparkUiUrl") or ""
        return JobStatus(stage, "\n".join(batch.get("log") or ()) if stage == "failed" else "", page)

    def cancel(self, run: str) -> None:
        """Delete the batch, which ends its driver."""
        answer = self._request(self._hook(), "DELETE", f"/{run}")
        if answer.status_code != 404:
            answer.raise_for_status()

    def _batches(self, hook: Any) -> list[dict[str, Any]]:
        first = self._request(hook, "GET", "?from=0&size=1")
        first.raise_for_status()
        # the newest are the last ones
        begin = max(int(first.json()["total"]) - _PAGE, 0)
        answer = self._request(hook, "GET", f"?from={begin}&size={_PAGE}")
        answer.raise_for_status()
        return list(answer.json()["sessions"])

    def _request(self, hook: Any, method: str, path: str, body: str | None = None) -> Any:
        endpoint = f"{hook.endpoint_prefix}/batches{path}"
        return hook.run_method(method=method, endpoint=endpoint, data=body, headers=hook.extra_headers)

    def _hook(self) -> Any:
        return self.load_hook()(livy_conn_id=self.conn_id)


def _format_json(body: Mapping[str, Any]) -> str:
    import json

    return json.dumps(body)
