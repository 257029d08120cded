"""The default way to run a Spark job: ``spark-submit`` on the worker, by Airflow's own operator.

Only this module knows the internals of ``SparkSubmitOperator`` and of its hook.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.connection_lookup import find_connection
from airflow_provider_cdc.operators.base.jvm_class_archive import LEAN, ClassArchive
from airflow_provider_cdc.operators.base.package_lines import PackageLines
from airflow_provider_cdc.targets.task_watch import TASK_PROCESS, identify_process

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_provider_cdc.hooks.airflow_compat import AirflowException
    from airflow_provider_cdc.services.submit.spark_job import SparkJob

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL_DRIVER = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}  # fmt: skip
"""Settings of a driver that has its executors in its own process: by default it listens on all interfaces, and asks for no login."""
_SECRET_ERRORS = {
    "CDC_SOURCE_PROPERTIES": (
        "The login of the source cannot be passed to a Spark job in cluster mode without exposing it.",
        "use deploy mode client",
    ),
    "CDC_SINK_PROPERTIES": (
        "The login of a database cannot be passed to a Spark job in cluster mode without exposing it.",
        "use deploy mode client",
    ),
    "CDC_STORAGE_OPTIONS": (
        "The change log's storage options cannot be passed to a Spark job in cluster mode without exposing them.",
        "omit the options and let the cluster's role or profile access the storage, or use deploy mode client",
    ),
}


def keep_package_lines(hook: SparkSubmitHook) -> SparkSubmitHook:
    """Let a hook keep the lines of packages out of the log of the task, and return it."""
    process_log: Callable[[Iterator[str]], None] = hook._process_spark_submit_log
    lines, changed = PackageLines(hook.log), cast("Any", hook)
    changed.package_lines = lines
    changed._process_spark_submit_log = lambda itr: process_log(lines.filter_lines(itr))
    return hook


class SparkSubmitProgram:
    """``spark-submit`` on this machine.

    :param operator: the task, with the arguments of the program
    """

    def __init__(self, operator: SparkSubmitOperator) -> None:
        self._operator = operator

    @property
    def shows_environment(self) -> bool:
        """Return whether variables of the environment become settings on the command line."""
        hook = self._operator._get_hook()
        return bool(hook._is_yarn or hook._is_kubernetes)

    @property
    def cluster_mode(self) -> bool:
        """Return whether the driver runs in the cluster."""
        return bool(self._operator._get_hook()._connection["deploy_mode"] == "cluster")

    @property
    def needs_s3_packages(self) -> bool:
        """Return whether Spark has no S3 by itself. Clusters on YARN have a Hadoop with it."""
        return not self._master.startswith("yarn")

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """The running program."""
        process: subprocess.Popen[str] | None = getattr(self._operator._hook, "_submit_sp", None)
        return process

    def read_argument(self, name: str) -> Any:
        """Return the value of an argument of ``SparkSubmitOperator``."""
        return getattr(self._operator, name, getattr(self._operator, f"_{name}", None))

    def prepare(self) -> None:
        """Complete the settings of a local driver, and find the program beside this Python.

        :raises ConfigError: the Spark connection does not exist. Airflow's hook would submit to YARN
        """
        operator = self._operator
        find_connection(
            operator._conn_id,
            "with which Spark jobs are submitted (host: local[2], spark://…, yarn or k8s://…)",
            "the name of the Spark connection",
        )
        if self._master.startswith("local"):
            operator.conf = {**_LOCAL_DRIVER, **(operator.conf or {})}
        beside = Path(sys.executable).with_name("spark-submit")
        if operator._spark_binary is None and shutil.which("spark-submit") is None and beside.exists():
            operator._spark_binary = str(beside)

    def tune_jvm(self, *, little: bool, make: bool) -> ClassArchive:
        """Add options of the driver's JVM, unless the user has set some.

        :param little: it is little work
        :param make: whether the archive of classes may be made
        """
        operator = self._operator
        archive = ClassArchive(
            operator._get_hook()._connection["spark_binary"], *filter(None, (operator.driver_class_path, operator.jars))
        )
        if not self.cluster_mode and _JAVA_OPTIONS not in (operator.conf or {}):
            quiet = Path(__file__).with_name("log4j2.properties").as_uri()
            options = [f"-Dlog4j2.configurationFile={quiet}"]
            if self._master.partition("[")[0] == "local":
                options += [*(LEAN if little else ()), *archive.build_jvm_options(make=make)]
            operator.conf = {**(operator.conf or {}), _JAVA_OPTIONS: " ".join(options)}
        return archive

    def run(self, job: SparkJob, context: Context) -> AirflowException | None:
        """Run the job, and return the error that it ended with.

        :raises ConfigError: the program does not exist, or a secret would be on its command line
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        self._operator.application, self._operator.application_args = job.script, [*job.arguments]
        try:
            with self._environment(job.secret_environment):
                SparkSubmitOperator.execute(self._operator, context)
        except AirflowException as e:
            self._report_packages()
            return e
        except RuntimeError as e:  # a driver in the cluster has failed
            self._report_packages()
            error = AirflowException(str(e))
            error.__cause__ = e
            return error
        except FileNotFoundError as e:
            if e.filename != self._operator._get_hook()._connection["spark_binary"]:
                raise
            raise ConfigError(
                f"The program {e.filename}, which starts Spark jobs, does not exist on this machine.",
                safe="Nothing was submitted.",
                remedy="run pip install 'airflow-provider-cdc[spark]' on this machine, or set the program with spark_binary or in the Spark connection",
            ) from e
        return None

    def _report_packages(self) -> None:
        lines: PackageLines | None = getattr(self._operator._hook, "package_lines", None)
        if lines is not None:
            lines.report_failure()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the program, and return whether it has ended."""
        process = self.process
        if process is None:
            return False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def cancel(self) -> None:
        """End the program, and the driver in the cluster if there is one."""
        SparkSubmitOperator.on_kill(self._operator)

    @property
    def _master(self) -> str:
        return str(self._operator._get_hook()._connection["master"])

    @contextlib.contextmanager
    def _environment(self, secrets: Mapping[str, str]) -> Iterator[None]:
        """Build the environment of a job in client mode: this process' own, so that nothing of it is on a command line."""
        if secrets and self.cluster_mode:
            problem, remedy = next(_SECRET_ERRORS[name] for name in _SECRET_ERRORS if name in secrets)
            raise ConfigError(problem, safe="Nothing was submitted.", remedy=remedy)
        # a driver of this machine does not outlive the task
        added = {TASK_PROCESS: identify_process(os.getpid()) or "", **secrets}
        added |= {
            name: sys.executable for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name not in os.environ
        }
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)
