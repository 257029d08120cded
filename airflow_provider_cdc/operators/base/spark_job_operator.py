"""The base of the tasks that submit Spark jobs of a connector: paths of the jobs, jars, and the way of secrets."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

import airflow_provider_cdc
from airflow_provider_cdc.core.config.secret_redaction import find_credentials, is_secret_name
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

STORAGE_OPTIONS = "CDC_STORAGE_OPTIONS"
"""Environment variable in which the job finds the fsspec options of the change log, as a JSON object."""
_NO_SECRET = ("provider", ".path", ".file", ".enabled", ".location", "providers")
"""Ends of names of Spark settings that are about credentials without containing one."""
_LOCAL_DRIVER = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}  # fmt: skip
"""Settings of a driver that has its executors in its own process: by default it listens on all interfaces, and asks for no login."""
_SUBMIT_ARGUMENTS = tuple(inspect.signature(SparkSubmitOperator.__init__).parameters)
"""Parameters of Airflow's operator, such as ``repositories`` and ``py_files``: most of them are arguments of ``spark-submit``."""
_PROPERTY = re.compile(r"-D([^\s=]+)=")
"""A property among the options of a JVM."""


class SparkScriptOperator(SparkSubmitOperator):
    """Submits a script of ``spark_jobs/``. Secret options of storages reach it by its environment.

    :param target: kind of the tables that it works on, ``delta`` or ``iceberg``; empty if they are not in a lakehouse
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :raises ConfigError: the target or the release is not known
    """

    template_fields_renderers: ClassVar[dict[str, str]] = {"conf": "json"}

    def __init__(self, *, target: str, conn_id: str, spark_version: str = "", **kwargs: Any) -> None:
        from airflow_provider_cdc.targets.lake.formats import load_format
        from airflow_provider_cdc.targets.lake.spark_releases.release_packages import known_spark_version

        for argument in ("application", "application_args"):
            if argument in kwargs:
                raise ConfigError(f"{argument} cannot be set: the operator submits its own job.")
        super().__init__(conn_id=conn_id, **kwargs)
        self.target = target
        self._table_format = load_format(target) if target else None
        self.spark_version = known_spark_version(spark_version)

    def _prepare_job(self, script: str, *arguments: str) -> None:
        """Set the script and the arguments of the job.

        :raises ConfigError: a secret would be on the command line
        """
        self._refuse_secrets()
        self.application = job_path(script)
        self.application_args = [*arguments]
        self._find_spark()

    def _submit(self, context: Context) -> AirflowException | None:
        """Submit the prepared job, and wait for its end.

        :return: the error that it ended with. The rest is in the job's report, if it wrote one
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        try:
            with self._storage_environment():
                super().execute(context)
        except AirflowException as e:
            return e
        except FileNotFoundError as e:
            if e.filename != self._get_hook()._connection["spark_binary"]:
                raise
            raise ConfigError(
                f"The program {e.filename}, which starts Spark jobs, does not exist on this machine.",
                safe="Nothing was submitted.",
                remedy="run pip install 'airflow-provider-cdc[spark]' on this machine, or set the program with spark_binary or in the Spark connection",
            ) from e
        return None

    def _find_spark(self) -> None:
        """Add the jars of a kind of table, and ``spark-submit``, where the user has named none.

        :raises ConfigError: no packages are known for this release of Spark
        """
        configured = any(key in (self.conf or {}) for key in ("spark.jars", "spark.jars.packages"))
        if self._table_format is not None and not (self.jars or self.packages or configured):
            self.packages = ",".join(self._table_format.find_packages(self.spark_version)) or None
        if str(self._get_hook()._connection["master"]).startswith("local"):
            self.conf = {**_LOCAL_DRIVER, **(self.conf or {})}
        beside = Path(sys.executable).with_name("spark-submit")
        if self._spark_binary is None and shutil.which("spark-submit") is None and beside.exists():
            self._spark_binary = str(beside)

    def _refuse_secrets(self) -> None:
        """Reject secrets on the command line.

        :raises ConfigError: a secret would be on the command line, which every user of the machine can read
        """
        shown = self._with_secrets()
        if shown:
            raise ConfigError(
                f"A secret would be on the command line of spark-submit: {', '.join(shown)}.",
                safe="Nothing was submitted.",
                remedy="put it into the workers' spark-defaults.conf or a Hadoop credential provider, or use a role to access the storage",
            )

    def _with_secrets(self) -> list[str]:
        """Arguments that have a secret in them."""
        shown = [
            name
            for name in _SUBMIT_ARGUMENTS
            if isinstance(text := getattr(self, name, getattr(self, f"_{name}", None)), str)
            and any(find_credentials("url", part) for part in text.split(","))
        ]
        shown += [f"conf[{name}]" for name, value in (self.conf or {}).items() if _is_secret(name, str(value))]
        secret = [
            f"env_vars[{name}]"
            for name, value in (self.env_vars or {}).items()
            if is_secret_name(name) or find_credentials("url", str(value))
        ]
        # only there they are given as settings
        return shown + (secret if secret and self._shows_environment() else [])

    def _shows_environment(self) -> bool:
        hook = self._get_hook()
        return bool(hook._is_yarn or hook._is_kubernetes)

    def _storage_options(self) -> dict[str, Any]:
        """Return the options that the job finds in :data:`STORAGE_OPTIONS`; empty, if it needs none."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _storage_environment(self) -> Iterator[None]:
        """Build the environment of a job in client mode: this process' own, so that nothing of it is on a command line."""
        options = self._storage_options()
        if options and self._cluster_mode():
            raise ConfigError(
                "The change log's storage options cannot be passed to a Spark job in cluster mode without exposing them.",
                safe="Nothing was submitted.",
                remedy="omit the options and let the cluster's role or profile access the storage, or use deploy mode client",
            )
        added = {STORAGE_OPTIONS: json.dumps(options)} if options else {}
        added |= {
            name: sys.executable for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name not in os.environ
        }
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)

    def _cluster_mode(self) -> bool:
        return bool(self._get_hook()._connection["deploy_mode"] == "cluster")


class SparkJobOperator(ConnectorFields, SparkScriptOperator):
    """Submits a job for the tables of one connector at a location."""

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields, "changelog", "changelog_options", "storage_conn_id", "location",
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {"changelog_options": "json", "conf": "json"}
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

    def _prepare(self, script: str, *arguments: str, changelog: str = "") -> None:
        """Set the script and the arguments of the job.

        :param changelog: that the job reads, by default the connector's
        :raises ConfigError: a secret would be on the command line
        """
        self._prepare_job(
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


def job_path(name: str) -> str:
    """Return the path of a script that ``spark-submit`` starts.

    >>> job_path("apply_changes.py")
    '/…/spark_jobs/apply_changes.py'
    """
    package = Path(airflow_provider_cdc.__file__).parent
    # a wheel has the scripts inside the package, a working copy beside it
    folder = package / "spark_jobs" if (package / "spark_jobs").is_dir() else package.with_name("spark_jobs")
    return str(folder / name)
