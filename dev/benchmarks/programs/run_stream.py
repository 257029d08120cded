"""Our capture as a process that streams until its standard input is closed: ``python -m dev.benchmarks.programs.run_stream FILE``.

See :mod:`dev.benchmarks.engines.streaming` for what it prints. A row of the probe table is *seen* when its event is encoded, and *durable* when
the batch that holds it is committed; a snapshot is completed when its state is, in the same commit.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Probes:
    """Watches, from outside, what is encoded and what is committed.

    :param table: topic of the table that is read in chunks
    :param probe: topic of the table of timestamps
    """

    def __init__(self, table: str, probe: str) -> None:
        self._table, self._probe = table, probe
        self.reads = self.events = 0
        self._open: list[list[int | None]] = []
        self.probes: list[list[int | None]] = []

    def watch(self) -> None:
        """Put the watch in place."""
        from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder
        from airflow_provider_cdc.core.writing.event_envelope import Envelope

        encode, commit = Envelope.encode_block, BatchBuilder.commit

        @functools.wraps(encode)
        def encoding(*args: Any, **kwargs: Any) -> Any:
            batches, seq = encode(*args, **kwargs)
            self._encoded(batches, incremental="snapshot" in kwargs)
            return batches, seq

        @functools.wraps(commit)
        def committing(batcher: BatchBuilder, *args: Any, **kwargs: Any) -> None:
            outcomes = list(batcher._signal_outcomes)
            commit(batcher, *args, **kwargs)
            self._committed(outcomes)

        Envelope.encode_block, BatchBuilder.commit = encoding, committing  # type: ignore[method-assign]

    def _encoded(self, batches: list[Any], *, incremental: bool) -> None:
        for batch in batches:
            self.events += batch.events.num_rows
            if incremental and batch.topic == self._table:
                self.reads += batch.events.num_rows
            elif batch.topic == self._probe:
                if not self._open and not self.probes:
                    print("streaming", flush=True)
                now = _now_us()
                written = batch.events.column("after").field("at_us").to_pylist()
                self._open += [[at, now, None] for at in written]

    def _committed(self, outcomes: list[Any]) -> None:
        now = _now_us()
        for probe in self._open:
            probe[2] = now
        self.probes += self._open
        self._open = []
        for outcome in outcomes:
            if outcome.state == "done":
                print(f"completed {now}", flush=True)
            else:
                print(f"failed {outcome.message}", flush=True)


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
    from airflow_provider_cdc.state.state_store import StateStore

    probes = Probes(given["table"], given["probe"])
    probes.watch()
    StateStore(given["state"]).create_tables()
    definition = ConnectorDefinition("bench", given["source"], given["changelog"], given["properties"])
    with open_capture(definition, given["state"], secrets=given["secrets"]) as capture:
        threading.Thread(target=_until_closed, args=(capture,), daemon=True).start()
        capture.run(run_for_s=86_400)
    print(json.dumps({"reads": probes.reads, "events": probes.events, "probes": probes.probes}), flush=True)
    return 0


def _until_closed(capture: Any) -> None:
    sys.stdin.read()
    capture.stop()


def _now_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    sys.exit(main())
