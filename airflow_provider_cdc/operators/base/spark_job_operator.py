"""The base of the tasks that submit Spark jobs of a connector: paths of the jobs, jars, secrets, and the service that runs them."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_cdc.core.config.secret_redaction import find_credentials, is_secret_name
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.base.spark_submit_program import SparkSubmitProgram, keep_package_lines
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from airflow_provider_cdc.services.submit import SPARK_SUBMIT, build_platform
from airflow_provider_cdc.services.submit.job_runner import cancel_job, run_job, submit_job, wait_for_end
from airflow_provider_cdc.services.submit.platform import Platform
from airflow_provider_cdc.services.submit.spark_job import (
    STORAGE_OPTIONS,
    JobStatus,
    SparkJob,
    SparkSubmitter,
    script_path,
)
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

_NO_SECRET = ("provider", ".path", ".file", ".enabled", ".location", "providers")
"""Ends of names of Spark settings that are about credentials without containing one."""
_SUBMIT_ARGUMENTS = tuple(inspect.signature(SparkSubmitOperator.__init__).parameters)
"""Parameters of Airflow's operator, such as ``repositories`` and ``py_files``: most of them are arguments of ``spark-submit``."""
_SIZES = {
    "driver_memory": "spark.driver.memory", "executor_memory": "spark.executor.memory", "executor_cores": "spark.executor.cores",
    "num_executors": "spark.executor.instances", "total_executor_cores": "spark.cores.max",
    "driver_class_path": "spark.driver.extraClassPath", "exclude_packages": "spark.jars.excludes",
    "repositories": "spark.jars.repositories", "archives": "spark.archives",
}  # fmt: skip
"""Arguments of ``spark-submit`` that are settings of Spark elsewhere."""
_PROGRAM_ONLY = (
    "keytab", "principal", "proxy_user", "properties_file", "spark_binary", "yarn_queue", "deploy_mode", "use_krb5ccache",
    "post_submit_commands", "track_driver_via_k8s_api", "yarn_track_via_rm_api", "yarn_rm_auth",
)  # fmt: skip
"""Arguments that only ``spark-submit`` has."""
_S3 = re.compile(r"\bs3[an]?://")
_PROPERTY = re.compile(r"-D([^\s=]+)=")
"""A property among the options of a JVM."""

job_path = script_path


class SparkScriptOperator(SparkSubmitOperator):
    """Submits a script of ``spark_jobs/``. Secret options of storages reach it by its environment.

    :param target: kind of the tables that it works on, ``delta`` or ``iceberg``; empty if they are not in a lakehouse
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :param submit: the service that runs the job (templated): ``"spark-submit"``, the name of another platform, a mapping with ``platform`` and its
        parameters, or any :class:`~airflow_provider_cdc.services.submit.spark_job.SparkSubmitter`; see docs/platforms/spark.md
    :raises ConfigError: the target, the release or the platform is not known
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "submit")
    template_fields_renderers: ClassVar[dict[str, str]] = {"conf": "json", "submit": "json"}

    def __init__(
        self,
        *,
        target: str,
        conn_id: str,
        spark_version: str = "",
        submit: str | Mapping[str, Any] | SparkSubmitter = SPARK_SUBMIT,
        **kwargs: Any,
    ) -> None:
        from airflow_provider_cdc.targets.lake.formats import load_format
        from airflow_provider_cdc.targets.lake.spark_releases.release_packages import known_spark_version

        for argument in ("application", "application_args"):
            if argument in kwargs:
                raise ConfigError(f"{argument} cannot be set: the operator submits its own job.")
        if "durable" in _SUBMIT_ARGUMENTS:  # the Spark provider for Spark 3.5 does not have it
            # the next try submits its own job: one that continues is no harm, and the report of an old one is not that of this try
            kwargs.setdefault("durable", False)
        super().__init__(conn_id=conn_id, **kwargs)
        self.target = target
        self._table_format = load_format(target) if target else None
        self.spark_version = known_spark_version(spark_version)
        self._user_submitter: SparkSubmitter | None = None
        self._set_submit(submit)
        self._job: SparkJob | None = None
        self._run_id: str | None = None
        """Identity of the run on a platform, while the task waits for it."""

    def _set_submit(self, submit: str | Mapping[str, Any] | SparkSubmitter) -> None:
        """Set the service that runs the job.

        :raises ConfigError: it is not known, or cannot take the arguments of ``spark-submit`` that are given
        """
        if isinstance(submit, Platform):
            submit = submit.to_document()
        if not isinstance(submit, str | Mapping):
            if not isinstance(submit, SparkSubmitter):
                raise ConfigError(f"submit={submit!r} has no methods submit, inspect and cancel.")
            self._user_submitter, submit = submit, type(submit).__name__
        elif "{{" not in str(submit):
            build_platform(submit)
        self.submit: str | dict[str, Any] = submit if isinstance(submit, str) else dict(submit)
        given = [] if self._default_submit else [name for name in _PROGRAM_ONLY if self._program.read_argument(name)]
        if given:
            raise ConfigError(
                f"{', '.join(given)} has no effect with submit={self._submit_name}: only spark-submit knows it.",
                remedy=f"omit {', '.join(given)}, or omit submit",
            )

    def _get_hook(self) -> SparkSubmitHook:
        return keep_package_lines(super()._get_hook())

    @property
    def _program(self) -> SparkSubmitProgram:
        return SparkSubmitProgram(self)

    @property
    def _submit_name(self) -> str:
        return self.submit if isinstance(self.submit, str) else str(self.submit.get("platform", ""))

    @property
    def _default_submit(self) -> bool:
        return self._user_submitter is None and self._submit_name == SPARK_SUBMIT

    def _find_submitter(self) -> SparkSubmitter:
        submitter = self._user_submitter or build_platform(self.submit)
        if submitter is None:
            raise TypeError("spark-submit is a program of this machine")
        return submitter

    def _prepare_job(self, script: str, *arguments: str) -> SparkJob:
        """Set the script and the arguments of the job.

        :raises ConfigError: a secret would be on the command line
        """
        self._refuse_secrets()
        configured = any(key in (self.conf or {}) for key in ("spark.jars", "spark.jars.packages"))
        if self._table_format is not None and not (self.jars or self.packages or configured):
            self.packages = ",".join(self._find_packages(arguments)) or None
        if self._default_submit:
            self._program.prepare()
        sizes = {
            setting: str(value)
            for argument, setting in _SIZES.items()
            if (value := self._program.read_argument(argument)) is not None
        }
        conf = {name: _setting_text(value) for name, value in (self.conf or {}).items()}
        self._job = SparkJob(
            name=self.name, script=job_path(script), arguments=arguments, packages=_split(self.packages), jars=_split(self.jars),
            py_files=_split(self.py_files), files=_split(self.files), conf={**sizes, **conf},
            environment={name: str(value) for name, value in (self.env_vars or {}).items()},
        )  # fmt: skip
        return self._job

    def _find_packages(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Return the packages of the table format, and those of S3 if an argument names a place there and the cluster brings none."""
        from airflow_provider_cdc.targets.lake.spark_releases.release_packages import S3_EXCLUDED, find_s3_packages

        assert self._table_format is not None
        packages = self._table_format.find_packages(self.spark_version)
        if not (self._default_submit and self._program.needs_s3_packages and _S3.search(" ".join(arguments))):
            return packages
        if not self._program.read_argument("exclude_packages"):
            self.conf = {"spark.jars.excludes": S3_EXCLUDED, **(self.conf or {})}
        return (*packages, *find_s3_packages(self.spark_version))

    def _submit(self, context: Context) -> AirflowException | None:
        """Submit the prepared job, and wait for its end.

        :return: the error that it ended with. The rest is in the job's report, if it wrote one
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        job = self._build_submission(context)
        if self._default_submit:
            return self._program.run(job, context)
        self.log.info("%s runs %s", self._submit_name, job.format_command())
        try:
            status = run_job(self._find_submitter(), job, self._remember_run)
        except CdcError:
            raise
        except Exception as e:  # each service has errors of its own; the report of the job is read all the same
            error = AirflowException(
                f"The Spark job on {self._submit_name} was not submitted, or its end is unknown: {e}"
            )
            error.__cause__ = e
            return error
        finally:
            self._run_id = None
        return self._build_end_error(status)

    def _build_end_error(self, status: JobStatus) -> AirflowException | None:
        """Return the error of a run that has not succeeded."""
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        if status.stage == "succeeded":
            return None
        reason = status.message or "the service names no reason"
        return AirflowException(
            f"The Spark job on {self._submit_name} has {status.stage}: {reason} {status.url}".strip()
        )

    def _defer_submission(self, context: Context, method: str, **kwargs: Any) -> None:
        """Submit the prepared job, and wait in the triggerer, if the platform is to do so.

        :param method: of the task, which gets ``event`` and ``kwargs``
        """
        from airflow_provider_cdc.triggers.spark_job import SparkJobTrigger

        platform = None if self._default_submit else self._find_submitter()
        if not isinstance(platform, Platform) or not platform.deferrable:
            return
        run = submit_job(platform, self._build_submission(context))
        self.log.info("Spark job %s runs on %s; the triggerer waits for it.", run, platform.NAME)
        self.defer(trigger=SparkJobTrigger(self.submit, run), method_name=method, kwargs=kwargs)

    def _build_submission(self, context: Context) -> SparkJob:
        assert self._job is not None
        return dataclasses.replace(self._job, secret_environment=self._secret_environment(), token=build_token(context))

    def _remember_run(self, run: str) -> None:
        self._run_id = run

    def _wait(self, seconds: float) -> bool:
        """Wait for the end of the job while the task is killed, and return whether it has ended."""
        if self._default_submit:
            return self._program.wait(seconds)
        return (
            self._run_id is not None and not wait_for_end(self._find_submitter(), self._run_id, timeout=seconds).active
        )

    def on_kill(self) -> None:
        """End the job."""
        if self._default_submit:
            self._program.cancel()
        elif self._run_id is not None:
            cancel_job(self._find_submitter(), self._run_id)

    def _refuse_secrets(self) -> None:
        """Reject secrets on the command line, or in the specification of the job.

        :raises ConfigError: a secret would be there, and every user of the machine or of the service can read it
        """
        shown = self._with_secrets()
        if shown:
            place = "on the command line" if self._default_submit else "in the specification of the job"
            raise ConfigError(
                f"A secret would be {place} of {self._submit_name}: {', '.join(shown)}.",
                safe="Nothing was submitted.",
                remedy="put it into the workers' spark-defaults.conf or a Hadoop credential provider, or use a role to access the storage",
            )

    def _with_secrets(self) -> list[str]:
        """Arguments that have a secret in them."""
        shown = [
            name
            for name in _SUBMIT_ARGUMENTS
            if isinstance(text := self._program.read_argument(name), str)
            and any(find_credentials("url", part) for part in text.split(","))
        ]
        shown += [f"conf[{name}]" for name, value in (self.conf or {}).items() if _is_secret(name, str(value))]
        secret = [
            f"env_vars[{name}]"
            for name, value in (self.env_vars or {}).items()
            if is_secret_name(name) or find_credentials("url", str(value))
        ]
        if not isinstance(self.submit, str):
            shown += [f"submit[{name}]" for name in _secret_parameters(self.submit)]
        # elsewhere they are part of the environment of a process
        return shown + (secret if secret and self._shows_environment() else [])

    def _shows_environment(self) -> bool:
        return not self._default_submit or self._program.shows_environment

    def _storage_options(self) -> dict[str, Any]:
        """Return the options that the job finds in :data:`STORAGE_OPTIONS`; empty, if it needs none."""
        raise NotImplementedError

    def _secret_environment(self) -> dict[str, str]:
        """Return the variables of the job that hold secrets."""
        options = self._storage_options()
        return {STORAGE_OPTIONS: json.dumps(options)} if options else {}


class SparkJobOperator(ConnectorFields, SparkScriptOperator):
    """Submits a job for the tables of one connector at a location."""

    template_fields: Sequence[str] = (
        *SparkScriptOperator.template_fields, "changelog", "changelog_options", "storage_conn_id", "location",
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **SparkScriptOperator.template_fields_renderers, "changelog_options": "json",
    }  # fmt: skip
    URLS: ClassVar[tuple[str, ...]] = ("changelog", "location")
    """Fields with a path or URL that is an argument of the job."""

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        location: str,
        target: str,
        conn_id: str,
        storage_conn_id: str | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(target=target, conn_id=conn_id, **kwargs)
        self._set_connector(definition, conn_id, DEFAULT_CONN_ID, storage_conn_id)
        self.location = location

    def _prepare(self, script: str, *arguments: str, changelog: str = "") -> SparkJob:
        """Set the script and the arguments of the job.

        :param changelog: that the job reads, by default the connector's
        :raises ConfigError: a secret would be on the command line
        """
        return self._prepare_job(
            script, "--changelog", changelog or self.changelog, "--connector", self.connector, "--location", self.location,
            "--target", self.target, *arguments,
        )  # fmt: skip

    def _no_report(self, changelog: str = "") -> AirflowException:
        """Build the error for a job that has ended well without a report."""
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        return AirflowException(
            f"The Spark job succeeded, but wrote no report to {changelog or self.changelog}: check that the job read this change log."
        )

    def _with_secrets(self) -> list[str]:
        return super()._with_secrets() + [
            name for name in self.URLS if find_credentials("url", getattr(self, name) or "")
        ]

    def _storage_options(self) -> dict[str, Any]:
        return {**self.changelog_options, **storage_options(self.storage_conn_id)}


def known_threads(threads: Any) -> int:
    """Return how many tables a job works on at the same time.

    :raises ConfigError: it is no such number
    """
    if not isinstance(threads, int) or threads < 1:
        raise ConfigError(f"threads must be at least 1, but is {threads!r}.")
    return threads


def _is_secret(name: str, value: str) -> bool:
    """Check whether a setting of Spark holds a secret: as a whole, in a URL, or as a property of Java."""
    if name.endswith("JavaOptions"):
        return any(
            is_secret_name(property_name) and not property_name.endswith(_NO_SECRET)
            for property_name in _PROPERTY.findall(value)
        )
    return (is_secret_name(name) and not name.endswith(_NO_SECRET)) or bool(find_credentials(name, value))


def _secret_parameters(parameters: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Names of parameters of a platform that hold a secret. Those whose name says secret and that are mappings hold references."""
    for name, value in parameters.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping):
            yield from () if is_secret_name(name) else _secret_parameters(value, f"{path}.")
        elif isinstance(value, str) and not value.startswith("{{secrets/") and _is_secret(name, value):
            yield path


def build_token(context: Context) -> str:
    """Return the identity of the submission of one try of a task, or of a command: a request that is repeated has the same one."""
    if "ti" not in context:  # a command
        return uuid.uuid4().hex
    ti = context["ti"]
    parts = [ti.dag_id, ti.task_id, ti.run_id, getattr(ti, "map_index", -1), ti.try_number]
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:32]


def _split(texts: str | None) -> tuple[str, ...]:
    return tuple(text.strip() for text in (texts or "").split(",") if text.strip())


def _setting_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
