"""The parameters that all platforms have in common: where scripts and the wheel are, secrets, polls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, ClassVar

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.submit.spark_job import JobStatus, SparkJob

PACKAGE_FILE = "airflow_provider_cdc.zip"
"""The package as Spark takes it in ``spark.submit.pyFiles``."""
INSTALLED = "installed"
"""The ``wheel_uri`` of an image or a cluster that has this package."""
_TEXTS = {
    "CDC_STORAGE_OPTIONS": "The change log's storage options",
    "CDC_SOURCE_PROPERTIES": "The login of the source database",
    "CDC_SINK_PROPERTIES": "The login of the target database",
}


@dataclass(kw_only=True)
class Platform:
    """A platform with its parameters. Subclasses implement :class:`~airflow_provider_cdc.services.submit.spark_job.SparkSubmitter`.

    :param application_uri: folder with the files of ``airflow cdc spark-files``, or the URI of one script
    :param wheel_uri: URI of the package, by default the file beside the scripts; ``installed``, if drivers and executors have it already
    :param secret_environment: variable → reference to the secret, in the form of the platform
    :param poll_interval: seconds between two looks at the run
    :param patience: seconds for which the service may be out of reach while the job runs
    :param deferrable: whether the apply waits in the triggerer
    """

    NAME: ClassVar[str]
    REQUIRED: ClassVar[tuple[str, ...]] = ("application_uri",)
    PROVIDER: ClassVar[str]
    """The package of Airflow's provider."""
    EXTRA: ClassVar[str]
    """The extra of this package that installs it."""
    HOOK: ClassVar[str]
    """Path of the provider's hook."""
    SECRETS: ClassVar[str]
    """The right way of a secret on this platform, for errors."""
    TAKES_REFERENCES: ClassVar[bool] = False
    """True if a job gets secrets by references."""
    DRIVER_ENVIRONMENT: ClassVar[str] = "spark.yarn.appMasterEnv"
    """Prefix of the settings that are variables of the driver."""
    PACKAGE: ClassVar[str] = PACKAGE_FILE

    application_uri: str = ""
    wheel_uri: str = ""
    secret_environment: Mapping[str, Any] = field(default_factory=dict)
    poll_interval: float = 10.0
    patience: float = 600.0
    deferrable: bool = False

    @abstractmethod
    def submit(self, job: SparkJob) -> str:
        """Start the job, and return the identity of its run."""

    @abstractmethod
    def inspect(self, run: str) -> JobStatus:
        """Return the status of a run."""

    @abstractmethod
    def cancel(self, run: str) -> None:
        """Cancel a run."""

    def to_document(self) -> dict[str, Any]:
        """Return the mapping that :func:`~airflow_provider_cdc.services.submit.build_platform` takes."""
        return {"platform": self.NAME, **asdict(self)}

    def script_uri(self, job: SparkJob) -> str:
        """Return the URI of the job's script."""
        if self.application_uri.endswith(".py"):
            return self.application_uri
        return f"{self.application_uri.rstrip('/')}/{PurePosixPath(job.script).name}"

    def package_uri(self) -> str:
        """Return the URI of this package."""
        if self.wheel_uri:
            return self.wheel_uri
        folder = self.application_uri.rstrip("/")
        return f"{folder.rpartition('/')[0] if folder.endswith('.py') else folder}/{self.PACKAGE}"

    def python_files(self, job: SparkJob) -> list[str]:
        """Return the URIs of Python packages: this one, unless the driver has it, and those of the user."""
        return [*([] if self.wheel_uri == INSTALLED else [self.package_uri()]), *job.py_files]

    def settings(self, job: SparkJob) -> dict[str, str]:
        """Return the settings of Spark, with variables, jars and Maven packages among them.

        :raises ConfigError: a secret has no reference
        """
        added = {"spark.jars.packages": ",".join(job.packages), "spark.jars": ",".join(job.jars)}
        environment = {
            f"{prefix}.{name}": value
            for name, value in job.environment.items()
            for prefix in (self.DRIVER_ENVIRONMENT, "spark.executorEnv")
        }
        references = self.secret_settings(self.secret_references(job))
        return {**{name: value for name, value in added.items() if value}, **environment, **references, **job.conf}

    def secret_settings(self, references: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings by which the driver gets secrets."""
        return {}

    def secret_references(self, job: SparkJob) -> dict[str, Any]:
        """Return the references to the secrets that the job needs.

        :raises ConfigError: one is missing: its value is never sent
        """
        known = self.secret_environment if self.TAKES_REFERENCES else {}
        missing = [name for name in job.secret_environment if name not in known]
        if missing:
            subject = _TEXTS.get(missing[0], missing[0])
            raise ConfigError(
                f"{subject} cannot be passed to {self.NAME} in the job's specification without exposing them.",
                safe="Nothing was submitted.",
                remedy=self.SECRETS.format(name=missing[0], platform=self.NAME),
            )
        return {name: self.secret_environment[name] for name in job.secret_environment}

    def load_hook(self) -> Any:
        """Return the class of the provider's hook.

        :raises ConfigError: the provider is not installed
        """
        module, _, name = self.HOOK.rpartition(".")
        try:
            return getattr(import_module(module), name)
        except ImportError as e:
            raise ConfigError(
                f"submit={self.NAME} needs {self.PROVIDER}: {e}",
                safe="Nothing was submitted.",
                remedy=f"run pip install 'airflow-provider-cdc[{self.EXTRA}]' on this machine",
            ) from e


class KubernetesPlatform(Platform):
    """A platform that runs jobs on Kubernetes: a driver reads secrets of its namespace."""

    TAKES_REFERENCES = True
    DRIVER_ENVIRONMENT = "spark.kubernetes.driverEnv"
    SECRETS = (
        "store the JSON object in a secret of the job's namespace, and name it: "
        'submit={{"platform": "{platform}", "secret_environment": {{"{name}": "<secret>:<key>"}}, …}}; '
        "or omit the options, and let the role or the service account of the job access the storage"
    )

    def secret_settings(self, references: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings by which Spark reads the secrets of the namespace."""
        return {f"spark.kubernetes.driver.secretKeyRef.{name}": str(key) for name, key in references.items()}
