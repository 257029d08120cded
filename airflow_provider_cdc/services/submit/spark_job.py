"""Spark jobs as values, and the interface of a service that runs them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import airflow_provider_cdc

STORAGE_OPTIONS = "CDC_STORAGE_OPTIONS"
"""Environment variable in which a job finds the fsspec options of the change log, as a JSON object."""

Stage = Literal["pending", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class SparkJob:
    """A Spark job: everything that a service has to know to run it.

    :param name: shown by the service
    :param script: path of the script on this machine
    :param arguments: of the script; they hold no secret
    :param packages: Maven coordinates
    :param jars: paths or URIs of jars
    :param py_files: paths or URIs of Python packages, besides the wheel
    :param files: paths or URIs of files
    :param conf: settings of Spark; they hold no secret
    :param environment: variables of the driver and the executors; they hold no secret
    :param secret_environment: variables of the driver with secrets. A service never shows their values
    :param token: the identity of the submission: a service that gets the same token again returns the same run
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str = ""

    def to_document(self) -> dict[str, Any]:
        """Return the job as plain values, without its secrets: of them only the names are in it."""
        return {
            "name": self.name, "script": self.script, "arguments": list(self.arguments), "packages": list(self.packages),
            "jars": list(self.jars), "py_files": list(self.py_files), "files": list(self.files), "conf": dict(self.conf),
            "environment": dict(self.environment), "secret_environment": sorted(self.secret_environment),
        }  # fmt: skip

    def format_command(self) -> str:
        """Return the script and its arguments, quoted for a shell."""
        return shlex.join([self.script, *self.arguments])


@dataclass(frozen=True)
class JobStatus:
    """The status of a run.

    :param stage: ``pending`` and ``running`` are active, all others are final
    :param message: of the service
    :param url: of the run's page
    """

    stage: Stage
    message: str = ""
    url: str = ""

    @property
    def active(self) -> bool:
        """Return whether the run has not ended."""
        return self.stage in ("pending", "running")


@runtime_checkable
class SparkSubmitter(Protocol):
    """A service that runs Spark jobs. Any object with these methods may be given as ``submit=``."""

    def submit(self, job: SparkJob) -> str:
        """Start the job, and return the identity of its run. The same ``job.token`` again starts no second run.

        :raises ConfigError: the job cannot run there
        """

    def inspect(self, run: str) -> JobStatus:
        """Return the status of a run."""

    def cancel(self, run: str) -> None:
        """Cancel a run. A run that has ended is left alone."""


def script_path(name: str) -> str:
    """Return the path of a script that starts a job.

    >>> script_path("apply_changes.py")
    '/…/spark_jobs/apply_changes.py'
    """
    package = Path(airflow_provider_cdc.__file__).parent
    # a wheel has the scripts inside the package, a working copy beside it
    folder = package / "spark_jobs" if (package / "spark_jobs").is_dir() else package.with_name("spark_jobs")
    return str(folder / name)
