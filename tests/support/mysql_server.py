"""What tests do to MySQL and MariaDB servers."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pymysql


def purge_log(server: Any) -> None:
    """Let a server forget its log but for the last file.

    A file that somebody reads is not purged: readers that have hung up, which the server has not noticed, are ended.
    """
    server.sql("FLUSH BINARY LOGS")
    until = time.monotonic() + 30
    while len(files := server.sql("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < until, "the server keeps its log"
        for (reader,) in server.sql("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"):
            with contextlib.suppress(pymysql.err.OperationalError):  # it has ended by itself
                server.sql(f"KILL {reader}")
        server.sql(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
