"""The life of a change log, its state and the tables that are made from it, with all that happens to them: deletes, backups, restores."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CdcError, ChangeLogDamaged, TargetError
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import Connector, memory_connector

Rows = dict[str, list[tuple[Any, ...]]]


class AppliedTables:
    """Tables of one kind that are made from the change log."""

    TABLES: tuple[str, ...] = ("s.busy", "s.small")
    """One that changes all the time, and one that seldom does."""

    def apply(self, connector: Connector) -> None:
        raise NotImplementedError

    def rows(self) -> Rows:
        raise NotImplementedError

    def begin_again(self, error: str) -> None:
        """Follow the advice of the error: move away the tables that it names."""
        raise NotImplementedError


class InSqlite(AppliedTables):
    """Tables in a database of SQLite."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/target.db"
        self.config = DatabaseTargetConfig.parse(
            {
                "connection.url": self.url,
                "schema.evolution": "basic",
                "insert.mode": "upsert",
                "delete.enabled": "true",
                "primary.key.mode": "record_key",
            }
        )

    def apply(self, connector: Connector) -> None:
        engine = open_engine(self.config)
        try:
            DatabaseApply(engine, self.config, connector.changelog, connector.name).apply()
        finally:
            engine.dispose()

    def rows(self) -> Rows:
        engine, found = open_engine(self.config), Rows()
        with engine.connect() as connection:
            for table in self.TABLES:
                name = f"p_{table.replace('.', '_')}"
                if sa.inspect(connection).has_table(name):
                    read = connection.execute(sa.text(f"SELECT id, v FROM {name}")).all()
                    found[table] = sorted((tuple(row) for row in read), key=repr)
        engine.dispose()
        return found

    def begin_again(self, error: str) -> None:
        statement = re.search(r"\((DELETE FROM [^)]*?(?:'[^']*'[^)]*?)*)\)", error)
        assert statement is not None, error
        engine = open_engine(self.config)
        with engine.begin() as connection:
            connection.execute(sa.text(statement[1]))
            for table in self.TABLES:
                connection.execute(sa.text(f"DROP TABLE IF EXISTS p_{table.replace('.', '_')}"))
        engine.dispose()


class ConnectorSimulation:
    """A connector on a database in memory.

    :param made: what is made from its change log
    """

    def __init__(self, folder: Path, r: Random, made: AppliedTables) -> None:
        self.folder, self.r, self.made, self.said = folder, r, made, list[str]()
        self.db = MemoryDatabase(str(folder))
        for table in made.TABLES:
            self.db.create_table(table, {"id": "int32!", "v": "int32"}, key=() if table == "s.bag" else ("id",))
        self.connector = memory_connector(self.db, folder / "c", topic_prefix="p")
        self.backups = 0
        self.refused = 0

    # -- what happens -------------------------------------------------------------------------------------------------

    def write(self) -> None:
        r = self.r
        with self.db.transaction() as t:
            for table in self.made.TABLES:
                if table == "s.small" and r.random() < 0.7:
                    continue
                for _ in range(r.randint(1, 3)):
                    there = self.db.copy_rows(table)
                    if there and r.random() < 0.3:
                        t.delete(table, r.choice(there), limit=1)
                    elif there and r.random() < 0.4:
                        t.update(table, r.choice(there), {"v": r.randrange(99)}, limit=1)
                    elif (row := {"id": r.randrange(8), "v": r.randrange(99)})["id"] not in [
                        one["id"] for one in there
                    ]:
                        t.insert(table, row)

    def delete(self, *, with_changelog: bool) -> None:
        """``airflow cdc delete``."""
        ConnectorLifecycle(self.connector.name, self.connector.store, self.connector.changelog).delete(
            self.connector.name, "ann", with_changelog=with_changelog
        )

    def back_up(self) -> None:
        self.backups += 1
        self._reopened(lambda: shutil.copytree(self.folder / "c", self.folder / f"backup{self.backups}"))

    def restore(self, *, log: bool, state: bool) -> None:
        """Put back an earlier state of the change log, of the state tables, or both."""
        if not self.backups:
            return
        backup = self.folder / f"backup{self.r.randint(1, self.backups)}"

        def restore_folders() -> None:
            if log:
                shutil.rmtree(self.folder / "c/changelog", ignore_errors=True)  # it may be lost
                if (backup / "changelog").exists():
                    shutil.copytree(backup / "changelog", self.folder / "c/changelog")
            if state:
                for name in ("state.db", "state.db-wal", "state.db-shm"):
                    (self.folder / "c" / name).unlink(missing_ok=True)
                    if (backup / name).exists():
                        shutil.copy(backup / name, self.folder / "c" / name)

        self._reopened(restore_folders)

    def lose_log(self) -> None:
        """Someone deletes its folder."""
        shutil.rmtree(self.folder / "c/changelog", ignore_errors=True)

    def _reopened(self, work: Callable[[], object]) -> None:
        self.connector.store.close()
        work()
        self.connector = memory_connector(self.db, self.folder / "c", topic_prefix="p")

    # -- what has to be true ------------------------------------------------------------------------------------------

    def capture(self) -> bool:
        """Check whether it is green."""
        try:
            self.connector.capture()
        except ChangeLogDamaged as e:
            self.said.append(f"capture: {e}"[:150])
            return False
        return True

    def apply(self) -> str:
        """Apply the change log; return the text of the error, or an empty text after a success."""
        try:
            self.made.apply(self.connector)
        except (TargetError, ChangeLogDamaged) as e:
            self.said.append(f"apply: {e}"[:150])
            return str(e)
        return ""

    def wanted(self) -> Rows:
        return {
            table: sorted(((row["id"], row["v"]) for row in self.db.copy_rows(table)), key=repr)
            for table in self.made.TABLES
        }

    def check(self) -> None:
        """If capture and apply are green, all rows are equal."""
        if self.capture() and not self.apply():
            found = {table: self.made.rows().get(table, []) for table in self.made.TABLES}
            assert found == self.wanted(), self.said[-30:]

    def mended(self) -> None:
        """Follow the advice of the errors, and check that the tables equal the source afterwards."""
        if not self.capture():
            self.delete(with_changelog=False)  # what the error says: the next run continues behind the log's last batch
            assert self.capture(), self.said[-3:]
        if error := self.apply():
            self.refused += 1
            self.made.begin_again(error)
            assert not self.apply(), self.said[-3:]
        found = {table: self.made.rows().get(table, []) for table in self.made.TABLES}
        assert found == self.wanted(), self.said[-30:]

    def step(self) -> None:
        r = self.r
        what = r.choices(
            [
                "run",
                "capture",
                "back up",
                "delete",
                "forget",
                "restore log",
                "restore state",
                "restore both",
                "lose log",
                "mend",
            ],
            [10, 6, 2, 1, 0.5, 1, 1, 1, 0.5, 1],
        )[0]
        self.said.append(what)
        self.write()
        match what:
            case "run":
                self.check()
            case "capture":
                self.capture()
            case "back up":
                self.back_up()
            case "delete" | "forget":
                self.delete_if_there(with_changelog=what == "delete")
            case "restore log" | "restore state" | "restore both":
                self.restore(log="state" not in what, state="log" not in what)
            case "lose log":
                self.lose_log()
            case _:
                self.mended()

    def delete_if_there(self, *, with_changelog: bool) -> None:
        try:
            self.delete(with_changelog=with_changelog)
        except CdcError as e:
            self.said.append(f"delete: {e}"[:100])
