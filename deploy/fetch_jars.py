"""Fetch the jars of Spark jobs into a folder of Ivy, so that pods start without downloads: ``python fetch_jars.py FOLDER KIND…``.

It asks for the packages that the operators ask for, by ``spark-submit`` itself. Kinds: ``delta``, ``iceberg``. ``--s3`` adds the packages for ``s3a://``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from airflow_provider_cdc.targets.lake.spark_releases.release_packages import (
    S3_EXCLUDED,
    find_packages,
    find_s3_packages,
)


def list_resolutions(kinds: list[str], *, s3: bool) -> list[tuple[str, ...]]:
    """Return the lists of packages that operators ask for: each kind of tables alone, and with S3."""
    found = []
    for kind in kinds:
        found.append(find_packages(kind))
        if s3:
            found.append((*find_packages(kind), *find_s3_packages()))
    return found


def build_command(folder: Path, packages: tuple[str, ...], script: Path) -> list[str]:
    """Build the call of ``spark-submit`` that fetches packages and runs an empty script."""
    settings = {"spark.jars.ivy": str(folder), "spark.jars.excludes": S3_EXCLUDED, "spark.ui.enabled": "false"}
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return ["spark-submit", "--master", "local[1]", "--packages", ",".join(packages), *conf, str(script)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="+", choices=("delta", "iceberg"))
    parser.add_argument("--s3", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "empty.py")
        script.write_text("")
        for packages in list_resolutions(args.kinds, s3=args.s3):
            subprocess.run(build_command(args.folder, packages, script), check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
