"""The same values by four ways: a query, the snapshot, the log, and a chunk of an incremental snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import signal_ended, signal_state, snapshot

LOGGED = 1000
"""Number of the first row that is written behind the snapshot."""


class FourWays:
    """Tables in a separate database, one for each column type, whose values are read in four ways.

    Half of the rows are written before the snapshot, the same rows again behind it, and then all of them are read in chunks.

    :param tables: name → declared type of its column, and literals of its values
    :param before: statements of the session that writes
    :ivar seen: table → row → way → value
    """

    def __init__(
        self,
        server: Any,
        folder: Path,
        kind: str,
        database: str,
        tables: Mapping[str, tuple[str, Sequence[str]]],
        *,
        before: Sequence[str] = (),
        **properties: Any,
    ) -> None:
        self.tables, self.database = tables, database
        server.sql(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}")
        with server.connect(database=database, autocommit=True) as self._sql, self._sql.cursor() as self._cursor:
            for statement in ("SET sql_mode = '', time_zone = '+00:00'", *before):
                self._cursor.execute(statement)
            for name, (declared, _) in tables.items():
                self._cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v {declared})")
            self._write(0)
            self.connector: Connector = mysql_connector(
                server, folder, kind, database_include_list=database, **properties
            )
            self.connector.capture()
            self._write(LOGGED)
            self.connector.capture()
            number = snapshot(self.connector, f"{database}..*")
            self.connector.capture(run_for_s=60, until=signal_ended(self.connector, number))
            assert signal_state(self.connector, number)[0] == "done", signal_state(self.connector, number)
            self.seen = self._events()
            for name in tables:
                self._cursor.execute(f"SELECT * FROM {name}")
                for id_, value in self._cursor.fetchall():
                    self.seen[name].setdefault(id_, {})["query"] = value

    def _write(self, first: int) -> None:
        for name, (_, literals) in self.tables.items():
            rows = ", ".join(f"({first + n}, {literal})" for n, literal in enumerate(literals))
            self._cursor.execute(f"INSERT INTO {name} VALUES {rows}")

    def _events(self) -> dict[str, dict[int, dict[str, Any]]]:
        found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in self.tables}
        for manifest in self.connector.changelog.read_manifests(self.connector.name):
            for file in manifest.files:
                with self.connector.changelog.open_file(self.connector.name, file) as f:
                    for event in pq.read_table(f, columns=["op", "after", "source"]).to_pylist():
                        way = "log" if event["op"] == "c" else "snapshot"
                        way = "chunk" if event["source"]["snapshot"] == "incremental" else way
                        row = event["after"]
                        found[event["source"]["table"]].setdefault(row["id"], {})[way] = row["v"]
        return found

    def differences(self, *, query: bool = True) -> list[str]:
        """Values that are not the same in all ways.

        :param query: whether a query gives values in the form of the change log
        """
        wrong = []
        for name, (declared, literals) in self.tables.items():
            for n, literal in enumerate(literals):
                first, second = self.seen[name][n], self.seen[name][LOGGED + n]
                ways = {
                    "snapshot": first["snapshot"], "log": second["log"], "chunk": first["chunk"],
                    "chunk of the row of the log": second["chunk"],
                }  # fmt: skip
                if query:
                    ways["query"] = second["query"]
                expected = ways["query" if query else "snapshot"]
                wrong += [
                    f"{declared:.40} {literal:.60}, {way}: {_difference(value, expected)}"
                    for way, value in ways.items()
                    if value != expected or type(value) is not type(expected)
                ]
        return wrong


def _difference(found: Any, expected: Any) -> str:
    if isinstance(found, str) and isinstance(expected, str) and len(found) == len(expected):
        at = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        return f"at {at} {found[at : at + 5]!r} instead of {expected[at : at + 5]!r}"
    return f"{found!r:.100} instead of {expected!r:.100}"
