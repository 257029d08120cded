"""The code that executors run, for those whose Python does not have it, or has it of another release."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext, SparkFiles

import airflow_provider_cdc
from airflow_provider_cdc.core.errors import ConfigError

PACKAGES = ("core", "changelog", "sources", "targets", "verify")
"""Packages that jobs may import (docs/architecture.md, "Packages and layers"); and the sources, by which
:mod:`airflow_provider_cdc.core.spi.partial_update_applier` finds the code that applies updates of documents."""
_SHOWN = 2000
_SENDING = threading.Lock()
_MADE = (1980, 1, 1, 0, 0, 0)
"""When each file was made, as far as the archive says: equal code is an equal archive."""


def ship_driver_code(context: SparkContext) -> None:
    """Give executors the driver's code. It stands before their installed packages; libraries (pyarrow, the driver of a database) are not in it.

    Executors within the driver's own process have it already.
    """
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return
    data = build_code_archive()
    folder = (
        Path(SparkFiles.getRootDirectory()) / "cdc"
    )  # executors fetch it from there; Spark deletes it when it stops
    folder.mkdir(exist_ok=True)
    file = folder / f"cdc_code_{hashlib.sha256(data).hexdigest()[:12]}.zip"
    with _SENDING:  # threads of one session must not take it for sent before it is
        if file.exists():
            return
        file.write_bytes(data)
        try:
            context.addPyFile(str(file))
        except BaseException:
            file.unlink()
            raise


def lacks_package(message: str) -> ConfigError | None:
    """Return the error for a job whose executors lack a package; ``None`` if its message says something else."""
    if "ModuleNotFoundError" not in message:
        return None
    lines = [line for line in message.splitlines() if line.startswith("ModuleNotFoundError")]
    return ConfigError(
        f"The executors lack a Python package: {' '.join(lines)[:_SHOWN] or message[:_SHOWN]}",
        safe="No table was changed.",
        remedy="install it in the Python environment of the workers, or set PYSPARK_PYTHON to a Python that has it; the job itself sends the code of airflow-provider-cdc to the workers",
    )


def build_code_archive() -> bytes:
    """Build the code as a zip archive that Python imports from."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, path in _modules():
            file.writestr(zipfile.ZipInfo(name, _MADE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _modules() -> Iterator[tuple[str, Path]]:
    """Names in the archive, and files."""
    provider = Path(airflow_provider_cdc.__file__).parent
    yield f"{provider.name}/__init__.py", provider / "__init__.py"
    for name in PACKAGES:
        for path in sorted((provider / name).rglob("*.py")):
            yield path.relative_to(provider.parent).as_posix(), path
