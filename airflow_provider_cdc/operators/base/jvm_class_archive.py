"""The start of the JVM of a Spark driver on this machine, so that a small batch does not wait for it.

Most of the time of a small batch goes to the JVM: it reads ten thousand classes out of three hundred jars, checks and links them, and compiles
their code twice, the second time for a speed that is not needed after half a minute. So there are two things that a job is started with:

- a **class archive**: the loaded classes of an earlier run as the JVM writes them into a file at its end, which later runs map into memory.
  It is made once for each installation of Java and Spark. The JVM itself refuses one that does not belong to its version and its jars, and
  then loads the classes as ever;
- for **little work** only the quick one of its compilers, and the collector of memory that needs no extra threads.

Nothing of this has an effect on a job that runs elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.files.change_log import ChangeLog
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport

log = logging.getLogger(__name__)

LITTLE_BATCH = 16 << 20
"""Bytes of change log up to which a batch is little work,"""
LITTLE_TABLES = 128 << 20
"""if the tables that it changes have no more bytes than this together."""
LEAN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM for little work."""

_QUIET = "-Xlog:cds*=error"  # a line for each class that cannot be in it
_ROOM = 1 << 30
"""Bytes that have to be free where an archive is written; it has about 200 MB."""
_KEPT = 3
"""Archives that are kept: of as many installations, or kinds of targets."""
_AGAIN_S = 24 * 3600.0
"""How long none is made after a run that was to make one has failed."""
_FOLDERS_OF_SETTINGS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def little_work(changelog: ChangeLog, connector: str, report: ApplyReport | None) -> bool:
    """Check whether the changes after a report are little work. A table of unknown size does not count as small.

    :param report: of the last run; ``None`` before the first one
    """
    if report is not None and report["lagging"]:
        return False  # older batches, too
    last, table_states = (0, {}) if report is None else (report["last_batch"], report["table_states"])
    pending, topics = 0, set[str]()
    number = last or max(changelog.find_first_batch(connector) - 1, 0)
    while manifest := changelog.find_manifest(connector, number + 1):
        number += 1
        pending += sum(file.bytes for file in manifest.files)
        topics |= {file.topic for file in manifest.files}
        if pending > LITTLE_BATCH:
            return False
    changed = [entry for name, entry in table_states.items() if entry.get("topic", name) in topics]
    sizes = [entry.get("bytes", LITTLE_TABLES + 1) for entry in changed]
    return bool(sum(sizes) <= LITTLE_TABLES)


class ClassArchive:
    """The class archive of one installation, for one run.

    :param binary: ``spark-submit`` of it
    :param more: further entries of the driver's class path
    """

    def __init__(self, binary: str, *more: str) -> None:
        self._folder = archive_folder()
        self._archive, self._part = self._folder / f"{_digest(binary, more)}.jsa", Path()
        self.making = False
        """Whether the run is to make it."""

    def build_jvm_options(self, *, make: bool) -> list[str]:
        """Return the options of the JVM to use the archive, or else to make it; nothing if neither can be done.

        :param make: whether it may be made
        """
        if any(char in str(self._folder) for char in " \t\n\"'\\,"):  # it is one word among Java's options
            return []
        if self._archive.exists():
            with contextlib.suppress(OSError):
                os.utime(self._archive)
            return [f"-XX:SharedArchiveFile={self._archive}", _QUIET]
        if not (make and self._can_be_made()):
            return []
        self._part, self.making = self._archive.with_name(f"{self._archive.stem}.{uuid4().hex[:8]}.part"), True
        return [f"-XX:ArchiveClassesAtExit={self._part}", _QUIET]

    def _can_be_made(self) -> bool:
        """Check whether the JVM can make an archive.

        It makes none with a folder of settings on its class path, and fails at its end if it cannot write.
        """
        for folder in (_settings_of_spark(), *(os.environ.get(name) for name in _FOLDERS_OF_SETTINGS)):
            with contextlib.suppress(OSError):
                if folder and any(Path(folder).iterdir()):
                    return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            refused = self._refused()
            if refused.exists() and time.time() - refused.stat().st_mtime < _AGAIN_S:
                return False
            return os.access(self._folder, os.W_OK) and shutil.disk_usage(self._folder).free > _ROOM
        except OSError as e:
            log.info("The archive of Spark's classes cannot be stored: %s", e)
            return False

    def store_new_archive(self) -> None:
        """Store the archive that a successful run has made."""
        if not self.making or not self._part.exists():
            return
        # the JVM checks the head of an archive only; one that was cut off would end it
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self._archive)
        log.info("The classes of the job are stored in %s: the next job starts faster.", self._archive)
        for old in sorted(self._folder.glob("*.jsa"), key=lambda f: f.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
        self._clear()

    def discard_new_archive(self) -> None:
        """Discard the archive of a run that has failed.

        So that this cannot be the reason twice, none is made for a day.
        """
        if self.making:
            self._part.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._refused().touch()

    def _refused(self) -> Path:
        return self._archive.with_suffix(".failed")

    def _clear(self) -> None:
        """Delete the files that killed runs have left."""
        for part in self._folder.glob("*.part"):
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > _AGAIN_S:
                    part.unlink()


def archive_folder() -> Path:
    """Return the folder of archives: one of this user alone, since the code of a run is in them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-provider-cdc"


def _settings_of_spark() -> str:
    home = os.environ.get("SPARK_HOME")
    return "" if home is None or "SPARK_CONF_DIR" in os.environ else f"{home}/conf"


def _digest(binary: str, more: Iterable[str]) -> str:
    """Compute a digest that separates installations: by Java, Spark's jars, and further entries of the class path."""
    home = os.environ.get("SPARK_HOME") or _home_of(binary)
    java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else shutil.which("java") or ""
    parts = [_looks(Path(java)), home, *sorted(map(_looks, Path(home, "jars").glob("*.jar"))), *more]
    parts += [os.environ.get(name, "") for name in ("SPARK_DIST_CLASSPATH", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _home_of(binary: str) -> str:
    """Return the folder of the Spark that ``spark-submit`` belongs to."""
    beside = Path(shutil.which(binary) or binary).resolve().parent
    if (beside.parent / "jars").is_dir():
        return str(beside.parent)
    # of a pip installation: the program is in the environment's folder, the jars are in the package
    return str(next(beside.parent.glob("lib/python*/site-packages/pyspark"), beside.parent))


def _looks(file: Path) -> str:
    try:
        real = file.resolve()
        status = real.stat()
    except OSError:
        return str(file)
    return f"{real} {status.st_size} {status.st_mtime_ns}"
