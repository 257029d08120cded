"""Tables that a change log is applied to, for tests: apply, look at them, compare them with what they have to be."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges, ApplyRunReport
from airflow_provider_cdc.targets.lake.session.spark_session import open_spark_session
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from dev import paths
from dev.bootstrap.jars import ensure
from tests.support.change_log.replay import Table
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import LONGEST_S
from tests.targets.lake.points import Hook, hook_format

Row = dict[str, Any]
KINDS = ("delta", "iceberg")
"""Kinds of targets that keep their tables in files."""
SECRET = "CDC_TEST_SECRET"
"""Environment variable of the driver whose value must never be seen; Spark would put it wherever ``${env:CDC_TEST_SECRET}`` is."""


def start_spark() -> SparkSession:
    """A small session with the jars of every kind of target."""
    os.environ.setdefault(SECRET, f"secret-{os.getpid()}")  # the JVM has it from its beginning
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it has something to say even after the tests have ended
    return open_spark_session(
        "tests",
        *map(load_format, KINDS),
        extra={
            "spark.master": "local[2]",
            "spark.jars": ",".join(map(str, ensure(*KINDS))),
            "spark.driver.memory": "1500m",
            "spark.ui.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.databricks.delta.snapshotPartitions": "1",
            **catalogs(_folder_of_this_process()),
        },
    )


def _folder_of_this_process() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="catalogs"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


CATALOGS = {"in_files": {"type": "hadoop"}, "looked_up": {"type": "hadoop", "cache-enabled": "false"}}
"""Iceberg catalogs that need no server: one keeps the tables that it has loaded, the other does not."""


def catalogs(folder: Path) -> dict[str, str]:
    """The settings of all catalogs, whose tables are below a folder."""
    settings = {}
    for name, given in CATALOGS.items():
        key = f"spark.sql.catalog.{name}"
        settings[key] = "org.apache.iceberg.spark.SparkCatalog"
        settings |= {f"{key}.{k}": v for k, v in {**given, "warehouse": str(folder / name)}.items()}
    return settings


@dataclass
class Lake:
    """Tables of one kind below ``folder`` and the connector that they follow."""

    spark: SparkSession
    folder: Path
    connector: Connector
    name: str = "lake"
    kind: str = KINDS[0]
    hook: Hook | None = None
    tables: TableRules = NO_RULES
    reports: list[ApplyRunReport] = field(default_factory=list)

    @property
    def location(self) -> str:
        return f"{self.folder}/{self.name}/{{database}}/{{table}}"

    def path(self, table: str) -> str:
        return self.location.format(**dict(zip(("database", "table"), table.split("."), strict=True)))

    def job(self, **options: Any) -> ApplyChanges:
        given = {"location": self.location, "target": self.kind, "threads": 2, "tables": self.tables, **options}
        job = ApplyChanges(self.spark, self.connector.changelog, self.connector.name, **given)
        if self.hook is not None:
            job._format = hook_format(load_format(job._kind), self.hook)
        return job

    def apply(self, **options: Any) -> ApplyRunReport:
        self.reports.append(self.job(**options).run())
        return self.reports[-1]

    def follow(self) -> ApplyRunReport:
        """Capture, then apply."""
        self.connector.capture()
        return self.apply()

    def target(self, table: str) -> Any:
        """The table as the job sees it."""
        return load_format(self.kind).open_target(self.spark, self.path(table))

    def owner(self, topic: str) -> Owner:
        """Return the owner that the table of a topic has to have."""
        name = self.connector.name
        return Owner(name, topic, changelog=self.connector.changelog.read_identity(name))

    def frame(self, table: str) -> Any:
        return self.target(table).read_rows()

    def sql(self, statement: str, table: str) -> Any:
        """A statement of someone else about a table, which is ``{}`` in it."""
        if self.kind == "delta":
            return self.spark.sql(statement.format(f"delta.`{self.path(table)}`"))
        return self.spark.sql(statement.format(f"{self.catalog()}.{table}"))

    def catalog(self) -> str:
        """The name of a catalog in which people find the tables that are there by path."""
        warehouse = f"{self.folder}/{self.name}"
        catalog = f"people_{zlib.crc32(warehouse.encode())}"
        settings = {"": "SparkCatalog", ".type": "hadoop", ".warehouse": warehouse, ".cache-enabled": "false"}
        for key, value in settings.items():
            value = value if key else f"org.apache.iceberg.spark.{value}"
            self.spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
        return catalog

    def log(self, table: str) -> Path:
        """The folder in which the table's commits are."""
        return Path(self.path(table)) / {"delta": "_delta_log", "iceberg": "metadata"}[self.kind]

    def rows(self, table: str, *columns: str) -> list[Row]:
        """The table's rows, in the order of their values."""
        frame = self.frame(table)
        rows: list[Row] = (frame.select(*map(quote_name, columns)) if columns else frame).toArrow().to_pylist()
        return sorted(rows, key=repr)

    def version(self, table: str) -> int:
        """Number of the table's last commit, from 0 on; -1 if there is none."""
        if self.kind == "delta":
            return max((int(f.stem) for f in self.log(table).glob("*.json")), default=-1)
        return max((int(f.name.split(".")[0][1:]) for f in self.log(table).glob("v*.metadata.json")), default=0) - 1

    def check(self, *tables: str) -> None:
        """The tables are what replaying the change log gives; by all columns that the source has now."""
        for topic, replayed in self.replayed().items():
            table = topic.split(".", 1)[1]
            if not tables or table in tables:
                assert self.rows(table, *replayed.schema.column_names) == replayed.all(), topic

    def replayed(self) -> dict[str, Table]:
        """Topic → its table by replaying the change log.

        Without those that the source has dropped before they could be read again: another table had got their name, and no one knows their rows.
        """
        database = getattr(self.connector, "database", None)
        there = {str(table) for table in database.read_consistent_view()[1]} if database else set()
        found = self.connector.replay.advance().tables
        return {topic: t for topic, t in found.items() if not t.rewritten or str(t.schema.id) in there}


class Database(MemoryDatabase):
    """A memory database with the DDL that its parent leaves out."""

    def rename_columns(self, table: str, **renamed: str) -> None:
        """Rename columns in one statement: ``old="new"`` for each column."""
        with self.lock:
            schema = next(s for t, s in self._schemas.items() if str(t) == table)
            columns = tuple(c.model_copy(update={"name": renamed.get(c.name, c.name)}) for c in schema.columns)
            key = tuple(renamed.get(name, name) for name in schema.key)
            schema = schema.model_copy(update={"columns": columns, "key": key})
            self._sparse[schema.id] = frozenset(renamed.get(name, name) for name in self._sparse[schema.id])
            self._rows[schema.id] = [{renamed.get(k, k): v for k, v in row.items()} for row in self._rows[schema.id]]
            names = {new: old for old, new in renamed.items()}
            self._alter(schema, _altered_change(schema, renamed=names), f"RENAME {renamed}")

    def comment(self, table: str, text: str, **columns: str) -> None:
        """Set the comment of a table, and those of some columns, in one statement."""
        with self.lock:
            schema = next(s for t, s in self._schemas.items() if str(t) == table)
            said = tuple(
                c.model_copy(
                    update={
                        "declared": c.declared.model_copy(update={"comment": columns.get(c.name, c.declared.comment)})
                    }
                )
                for c in schema.columns
            )
            schema = schema.model_copy(update={"columns": said, "comment": text})
            self._alter(schema, _altered_change(schema), f"COMMENT {text}")

    def arrange_columns(self, table: str, *names: str, nullable: bool = True) -> None:
        """Give columns another order, and say whether they may be NULL."""
        with self.lock:
            schema = next(s for t, s in self._schemas.items() if str(t) == table)
            columns = tuple(schema.get_column(name).model_copy(update={"nullable": nullable}) for name in names)
            schema = schema.model_copy(update={"columns": columns})
            self._alter(schema, _altered_change(schema), f"MODIFY {names}")

    def change_key(self, table: str, *key: str) -> None:
        with self.lock:
            schema = next(s for t, s in self._schemas.items() if str(t) == table)
            schema = schema.model_copy(update={"key": key})
            self._alter(schema, _altered_change(schema), f"PRIMARY KEY {key}")


def new_lake(spark: SparkSession, folder: Path, kind: str = KINDS[0], **properties: Any) -> Lake:
    """Tables below a folder that follow a memory database of their own, which is ``lake.connector.database``."""
    database = Database(str(folder))
    connector = memory_connector(database, folder, topic_prefix="p", **properties)
    connector.database = database  # type: ignore[attr-defined]
    return Lake(spark, folder, connector, kind=kind)


def _altered_change(schema: Any, **change: Any) -> Any:
    from airflow_provider_cdc.core.model.table_schema import TableChange

    return TableChange(type="ALTER", id=schema.id, table=schema, **change)


def spark_environment() -> dict[str, str]:
    """Environment for a child process with its own Spark session."""
    return {**os.environ, "PYTHONPATH": str(paths.ROOT), "PYSPARK_PYTHON": sys.executable}


class Child:
    """``tests/targets/lake/child.py`` in a separate process group: applies on command, one after the other.

    :param log: file of what it has to say
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.targets.lake.child"], cwd=paths.ROOT, env=spark_environment(), text=True,
                start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, lake: Lake, *point: str | int) -> None:
        """Begin an apply, which may die: ``begin(lake, "during", 5)``."""
        self._tell(lake, *point)

    def begin_rebuild(self, lake: Lake, name: str, to: str, *point: str | int) -> None:
        """Begin to build tables again."""
        self._tell(lake, "rebuild", name, to, *point)

    def _tell(self, lake: Lake, *what: str | int) -> None:
        reported = [
            lake.connector.changelog.storage.root,
            lake.connector.name,
            lake.location,
            lake.kind,
            lake.tables.format_rules(),
            *what,
        ]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(reported) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """``done``, the error, or nothing when it has died."""
        assert self._process.stdout is not None
        answers = (line.removeprefix("answer: ") for line in self._process.stdout if line.startswith("answer: "))
        return next(answers, "").strip()

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        return self._process.wait(LONGEST_S)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(LONGEST_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


__all__ = ["KINDS", "ChangeLog", "Child", "Database", "Lake", "new_lake", "start_spark"]
