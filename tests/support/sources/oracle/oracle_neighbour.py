"""Another pluggable database that is written beside the captured one: its transactions have the same ids, its table the same name."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from types import TracebackType

from dev.servers.oracle import Oracle
from tests.support.sources.oracle.oracle_server import run


class NeighbourWriter(threading.Thread):
    """Writes until it is stopped. Use it as a context manager.

    :param server: has the pluggable database ``ORCLPDB2``
    """

    def __init__(self, server: Oracle, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._random, self._stop_ = server, random.Random(seed), threading.Event()
        self._dsn = server.dsn.rpartition("/")[0] + "/ORCLPDB2"
        self.transactions = 0

    def __enter__(self) -> NeighbourWriter:
        self._server.sql(
            "CREATE TABLE ONE (ID NUMBER(9), S VARCHAR2(40 CHAR))", "ALTER TABLE ONE ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
            dsn=self._dsn,
        )  # fmt: skip
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self._stop_.set()
        self.join()

    def run(self) -> None:
        r = self._random
        with closing(self._server.connect(dsn=self._dsn)) as one, closing(self._server.connect(dsn=self._dsn)) as two:
            while not self._stop_.wait(r.choice((0.01, 0.05))):
                connection = r.choice((one, two))
                run(connection, f"INSERT INTO ONE VALUES ({self.transactions}, 'not yours')")
                if r.random() < 0.7:
                    run(connection, r.choice(("COMMIT", "ROLLBACK")))
                    self.transactions += 1
