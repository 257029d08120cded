"""Connectors for tests, in short: definition, state in a folder, change log in a folder."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture, open_source
from airflow_provider_cdc.core.capture.connector_capture import Capture, CaptureResult
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.change_log.replay import Replay


@dataclass
class Connector:
    """A connector whose state and change log live below one folder."""

    folder: Path
    source: str
    properties: dict[str, Any]
    secrets: dict[str, Any] = field(default_factory=dict)
    name: str = "test"
    state_url: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state_url = self.state_url or f"sqlite:///{self.folder}/state.db"
        self.store = StateStore(self.state_url, lease_ttl_s=5)
        self.store.create_tables()
        self.changelog = ChangeLog(str(self.folder / "changelog"))
        self.replay = Replay(self.changelog, self.name)

    def definition(self, **properties: Any) -> ConnectorDefinition:
        named = {k.replace("_", "."): v for k, v in properties.items()}
        return ConnectorDefinition(self.name, self.source, self.changelog.storage.url, {**self.properties, **named})

    def capture(
        self,
        properties: Mapping[str, Any] | None = None,
        *,
        run_for_s: float | None = None,
        until: Callable[[], object] | None = None,
    ) -> CaptureResult:
        """Run once, to the end of the log.

        :param run_for_s: follow the log for so long
        :param until: and not longer than until this is true
        """
        definition = ConnectorDefinition(
            self.name, self.source, self.changelog.storage.url, {**self.properties, **(properties or {})}
        )
        opened = open_capture(definition, self.state_url, secrets=self.secrets, lease_ttl_s=5, lease_wait_s=20)
        with opened as capture, _stop_when(capture, until) if until is not None else contextlib.nullcontext():
            return capture.run(run_for_s=run_for_s)

    def discovered(self, table: str) -> TableSchema:
        """A table as the source's catalog has it now."""
        with open_source(self.definition(), self.secrets) as source:
            return next(t for t in source.discover_tables().values() if str(t.id) == table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of a table by replaying the change log."""
        return self.replay.advance().rows(f"{self.properties.get('topic.prefix', self.name)}.{table}")


@contextlib.contextmanager
def _stop_when(capture: Capture, condition: Callable[[], object]) -> Iterator[None]:
    """Stop a capture as soon as a condition is true."""
    ended = threading.Event()
    errors: list[BaseException] = []

    def watch() -> None:
        try:
            while not ended.wait(0.05) and not condition():
                pass
        except BaseException as e:
            errors.append(e)
        capture.stop()

    watcher = threading.Thread(target=watch, name="stops a capture")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    if errors:
        raise errors[0]


def mysql_connector(server: Any, folder: Path, kind: str = "mariadb", **properties: Any) -> Connector:
    """A connector on a server of ``dev.servers``; properties with underscores for dots."""
    secrets = {
        "database.hostname": server.host,
        "database.port": server.port,
        "database.user": server.user,
        "database.password": server.password,
    }
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return Connector(folder, kind, {"database.server.id": 4001, **named}, secrets)


def memory_connector(database: MemoryDatabase, folder: Path, **properties: Any) -> Connector:
    """A connector on a memory database; properties with underscores for dots."""
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return Connector(folder, "memory", {"memory.database": database.name, "poll.interval.ms": 10, **named})
