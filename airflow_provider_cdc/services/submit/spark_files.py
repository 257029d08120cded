"""The files of Spark jobs that a platform needs at a URI: the scripts, and this package."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import airflow_provider_cdc
from airflow_provider_cdc.services.submit.platform import PACKAGE_FILE
from airflow_provider_cdc.services.submit.spark_job import script_path

_NAME, _WHEEL = "airflow_provider_cdc", "airflow-provider-cdc"
_LEFT_OUT = ("__pycache__", "plugins", "spark_jobs", "examples", "node_modules")
"""Folders that no Spark job needs."""
_TAG = "Wheel-Version: 1.0\nGenerator: airflow cdc spark-files\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def package_version() -> str:
    """Return the version of this package."""
    try:
        return distribution(_WHEEL).version
    except PackageNotFoundError:
        return "0"


def wheel_name() -> str:
    """Return the file name of the wheel."""
    return f"{_NAME}-{package_version()}-py3-none-any.whl"


def build_wheel() -> bytes:
    """Build a wheel of the installed package, without its pages. The same package gives the same bytes."""
    root = Path(airflow_provider_cdc.__file__).parent
    info = f"{_NAME}-{package_version()}.dist-info"
    contents = {
        f"{_NAME}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not set(path.relative_to(root).parts) & set(_LEFT_OUT)
    }
    metadata = f"Metadata-Version: 2.1\nName: {_WHEEL}\nVersion: {package_version()}\n"
    contents |= {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": _TAG.encode()}
    record = "".join(f"{name},,\n" for name in [*contents, f"{info}/RECORD"])
    contents[f"{info}/RECORD"] = record.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def build_files() -> Iterator[tuple[str, bytes]]:
    """Return the names and the contents of all files: scripts, the wheel, and the package for ``spark.submit.pyFiles``."""
    for script in sorted(Path(script_path("apply_changes.py")).parent.glob("*.py")):
        yield script.name, script.read_bytes()
    wheel = build_wheel()
    yield wheel_name(), wheel
    yield PACKAGE_FILE, wheel
