"""Captures over and over from a log whose bytes are damaged on their way: ``python damaged.py < arguments``.

A separate process, because kernels are compiled with bounds checked here (``NUMBA_BOUNDSCHECK``), and because a reader that goes
wrong may take its process along.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources import load_source
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet


class PresentSchemas(CapturedTableSchemas):
    """Structures as they are now, and as the log has them."""

    def __init__(self, schemas: dict[Any, Any], filters: Filters) -> None:
        self._schemas, self._filters = dict(schemas), filters

    def apply(self, change: Any) -> None:
        self._schemas[change.id] = change.table

    def find_schema(self, table: Any) -> Any:
        return self._schemas.get(table)

    def is_captured(self, table: Any) -> bool:
        return self._filters.is_table_captured(table)

    def read_again(self, table: Any) -> bool:
        return False

    def list_known_tables(self) -> Any:
        return list(self._schemas)


def main() -> None:
    given = json.load(sys.stdin)
    cls = load_source(given["kind"])
    config = cls.Config.parse(given["properties"])
    outcomes: Counter[str] = Counter()
    whole = binlog_connection.BinlogConnection.read_events
    randomly = random.Random(0)

    def damage_events(self: binlog_connection.BinlogConnection) -> Iterator[EventSet]:
        for events in whole(self):
            bodies = [i for i in range(len(events)) if int(events.table[i, k.EV_TYPE]) in given["types"]]
            for i in randomly.sample(bodies, min(len(bodies), randomly.choice((0, 1, 1, 3)))):
                start = int(events.table[i, k.EV_START]) + k.HEADER
                end = int(events.table[i, k.EV_START] + events.table[i, k.EV_LENGTH])
                if end > start:
                    events.buf[randomly.randrange(start, end)] = randomly.randrange(256)
            yield events

    with cls(config) as source:  # type: ignore[call-arg]
        present, filters = source.discover_tables(), Filters(config)
        start, end = source.oldest_position(), source.current_position()
        binlog_connection.BinlogConnection.read_events = damage_events  # type: ignore[method-assign]
        until = time.monotonic() + given["seconds"]
        for seed in range(given["rounds"][1]):
            if seed >= given["rounds"][0] and time.monotonic() > until:
                break
            randomly.seed(seed)
            try:
                rows, tables = 0, PresentSchemas(present, filters)
                for item in source.stream_log(start, tables, until=end):
                    for change in getattr(item, "changes", []):
                        tables.apply(change)
                    rows += sum(len(r.op) for r in getattr(item, "rows", []))
                outcomes["read"] += 1
            except CdcError as e:
                outcomes[type(e).__name__] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
