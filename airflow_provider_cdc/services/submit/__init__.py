"""Platforms that run Spark jobs: one thin module for each service, over the hook of its Airflow provider.

``spark-submit``, the default, is not among them: :mod:`airflow_provider_cdc.operators.base.spark_submit_program` starts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.submit.platform import Platform

SPARK_SUBMIT = "spark-submit"
"""The default: the program on the worker, by an Airflow connection to Spark."""

PLATFORMS = {
    "databricks": "databricks.Databricks",
    "emr-serverless": "emr.EmrServerless",
    "emr-steps": "emr.EmrSteps",
    "emr-eks": "emr.EmrEks",
    "dataproc-batch": "dataproc.DataprocBatch",
    "dataproc-job": "dataproc.DataprocJob",
    "livy": "livy.Livy",
    "spark-kubernetes": "spark_kubernetes.SparkKubernetes",
}
"""The names of platforms, and their classes below this package."""


def load_platform(name: str) -> type[Platform]:
    """Return the class of a platform. Its provider is not imported.

    :raises ConfigError: there is no such platform
    """
    if name == "connect":
        raise ConfigError(
            "submit=connect cannot be used: the jobs call the JVM of the driver, and a client of Spark Connect has none.",
            remedy="run the job beside the server, by spark-submit or one of the platforms in docs/platforms/spark.md",
        )
    if name not in PLATFORMS:
        raise ConfigError(
            f"submit={name!r} is not known.",
            remedy=f"use one of {', '.join([SPARK_SUBMIT, *PLATFORMS])}, or a mapping with platform= and its parameters",
        )
    module, _, class_name = PLATFORMS[name].partition(".")
    found: type[Platform] = getattr(import_module(f"{__name__}.{module}"), class_name)
    return found


def build_platform(submit: str | Mapping[str, Any]) -> Platform | None:
    """Build the platform that ``submit=`` names; ``None`` for ``spark-submit``.

        >>> build_platform({"platform": "livy", "application_uri": "s3a://lake/cdc"})
        Livy(application_uri='s3a://lake/cdc', …)

    :param submit: a name, or a mapping with ``platform`` and the parameters of its class
    :raises ConfigError: the platform is not known, or a parameter is missing, unknown or cannot be used
    """
    parameters: dict[str, Any] = {"platform": submit} if isinstance(submit, str) else dict(submit)
    name = parameters.pop("platform", "")
    if name == SPARK_SUBMIT:
        if parameters:
            raise ConfigError(f"submit: spark-submit has no parameters here, but {', '.join(parameters)} is given.")
        return None
    platform = load_platform(str(name))
    known = [field.name for field in fields(platform)]
    unknown = [parameter for parameter in parameters if parameter not in known]
    if unknown:
        raise ConfigError(
            f"submit: {name} has no parameter {', '.join(unknown)}.", remedy=f"its parameters are {', '.join(known)}"
        )
    missing = [parameter for parameter in platform.REQUIRED if not parameters.get(parameter)]
    if missing:
        raise ConfigError(
            f"submit: {name} needs {', '.join(missing)}.",
            remedy=f'write submit={{"platform": "{name}", "{missing[0]}": …}}',
        )
    return platform(**parameters)
