"""The pinned jars of ``dev/jars.toml``."""

import importlib.metadata
import os
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from dev import paths
from dev.bootstrap import fetch
from dev.bootstrap.report import Problem, Step, megabytes

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
LOCKED_SPARK = "4.1"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


@dataclass(frozen=True)
class Jar:
    """A pinned jar.

    :param coordinates: organisation, artifact and version; for a jar beside the usual one, ``jar`` and its classifier, too
    :param spark: release of Spark that the jar is made for; empty if it fits all
    """

    group: str
    coordinates: str
    sha256: str
    spark: str = ""

    @property
    def file_name(self) -> str:
        """The name of the file."""
        _, artifact, version, *more = self.coordinates.split(":")
        return "-".join([artifact, version, *more[1:]]) + ".jar"

    @property
    def version(self) -> str:
        """The version of the artifact."""
        return self.coordinates.split(":")[2]

    @property
    def url(self) -> str:
        """The address that the jar is fetched from."""
        organisation, artifact, version, *_ = self.coordinates.split(":")
        base = os.environ.get("CDC_MAVEN_REPO") or MAVEN_CENTRAL
        return f"{base.rstrip('/')}/{organisation.replace('.', '/')}/{artifact}/{version}/{self.file_name}"


def installed_spark() -> str:
    """The release of the PySpark that is installed, such as ``4.0``; without one, the release that the lock has."""
    try:
        return ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return LOCKED_SPARK


def list_jars(*groups: str, spark: str = "") -> list[Jar]:
    """The jars of these groups, for one release of Spark.

    :param spark: such as ``4.0``; empty for the installed one
    """
    jars = [Jar(**entry) for entry in tomllib.loads((paths.ROOT / "dev" / "jars.toml").read_text())["jar"]]
    if unknown := set(groups) - {jar.group for jar in jars}:
        raise Problem(f"dev/jars.toml has no group {', '.join(sorted(unknown))}")
    fitting = [jar for jar in jars if jar.group in groups and jar.spark in ("", spark or installed_spark())]
    if absent := set(groups) - {jar.group for jar in fitting}:
        raise Problem(
            f"dev/jars.toml has no jars of {', '.join(sorted(absent))} for Spark {spark or installed_spark()}"
        )
    return fitting


def ensure(*groups: str, step: Step | None = None, folder: Path = paths.JARS) -> list[Path]:
    """Fetch what is missing of these groups; returns the files, ready for ``spark.jars``."""
    step = step or Step(quiet=True)
    jars = list_jars(*groups)
    with paths.hold_lock("jars"):
        fetched = sum(_ensure(jar, folder / jar.file_name, step) for jar in jars)
    files = [folder / jar.file_name for jar in jars]
    step.done(f"{len(files)} jars, {megabytes(fetched) if fetched else 'unchanged'}")
    return files


def _ensure(jar: Jar, target: Path, step: Step) -> int:
    try:
        return fetch.download(jar.url, target, jar.sha256, step, jar.file_name)
    except fetch.FetchError as error:
        if not shutil.which("mvn"):
            raise Problem(
                f"{error}\nName a mirror of Maven Central in CDC_MAVEN_REPO, or install Maven, which knows your "
                "settings.xml, and run again."
            ) from error
        try:
            return _copy_with_maven(jar, target, step)
        except Problem as problem:
            raise Problem(f"{error}\n{problem}") from problem


def _copy_with_maven(jar: Jar, target: Path, step: Step) -> int:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["mvn", "-B", "-q", COPY_GOAL, f"-Dartifact={jar.coordinates}", f"-DoutputDirectory={folder}"]
        step.run(command, title=f"{jar.file_name} with mvn", cwd=Path(folder))
        file = Path(folder) / jar.file_name
        found = fetch.checksum(file)
        if found != jar.sha256:
            raise Problem(
                f"mvn delivered {jar.file_name} with the sha256 {found}, expected {jar.sha256}. Nothing was installed."
            )
        file.replace(target)
    return target.stat().st_size
