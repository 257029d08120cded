"""Spark jobs as plain dictionaries, for operators that this package does not know."""

from __future__ import annotations

from typing import Any, Literal

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator
from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
from airflow_provider_cdc.services.submit.platform import PACKAGE_FILE
from airflow_provider_cdc.services.submit.spark_files import wheel_name
from airflow_provider_cdc.services.submit.spark_job import STORAGE_OPTIONS, JobStatus, SparkJob


def cdc_job(
    definition: ConnectorDefinition,
    *,
    location: str,
    kind: Literal["apply", "maintain"] = "apply",
    target: str = "delta",
    application_uri: str = "",
    **options: Any,
) -> dict[str, Any]:
    """Return a job as a plain dictionary, for an operator of any platform.

        >>> job = cdc_job(shop, location="s3a://lake/{database}/{table}", application_uri="s3://lake/cdc")
        >>> LivyOperator(task_id="apply", file=job["script"], args=job["arguments"], py_files=[job["package"]], conf=job["conf"])

    The dictionary has ``name``, ``script``, ``arguments``, ``packages``, ``jars``, ``py_files``, ``files``, ``conf``, ``environment``, ``package`` (for
    ``--py-files``), ``wheel``, and ``secret_environment``: the names of variables that the job needs. It holds no secret. The operator that runs it emits no
    asset events and no metrics; ``AppliedSensor`` waits until its changes are in the tables.

    :param kind: ``apply`` or ``maintain``. A verification and a rebuild belong to a task: their operators take ``submit=``
    :param location: where tables are, as of :class:`~airflow_provider_cdc.operators.apply_changes.ApplyChangesOperator`
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param application_uri: folder with the files of ``airflow cdc spark-files``; without it, paths are those of this machine
    :param options: further arguments of the operator of this kind, such as ``threads``, ``conf`` and ``packages``
    :raises ConfigError: an option is not known or cannot be used, or a secret would be in the dictionary
    """
    from airflow_provider_cdc.core.errors import ConfigError

    if kind not in _OPERATORS:
        raise ConfigError(f"kind={kind!r} is not known.", remedy=f"use one of {', '.join(_OPERATORS)}")
    operator = _OPERATORS[kind](
        task_id="cdc_job", definition=definition, location=location, target=target, submit=_NoService(), **options
    )
    job = operator.build_job()
    document = job.to_document()
    if definition.changelog_options or options.get("storage_conn_id"):
        document["secret_environment"] = [STORAGE_OPTIONS]
    folder = application_uri.rstrip("/")
    if folder:
        document["script"] = f"{folder}/{job.script.rpartition('/')[2]}"
    prefix = f"{folder}/" if folder else ""
    return {**document, "package": f"{prefix}{PACKAGE_FILE}", "wheel": f"{prefix}{wheel_name()}"}


_OPERATORS: dict[str, Any] = {"apply": ApplyChangesOperator, "maintain": MaintainTablesOperator}


class _NoService:
    """The service of a job that is only described."""

    def submit(self, job: SparkJob) -> str:
        raise NotImplementedError

    def inspect(self, run: str) -> JobStatus:
        raise NotImplementedError

    def cancel(self, run: str) -> None:
        raise NotImplementedError
