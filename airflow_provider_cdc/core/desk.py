"""Where a run takes signals and carries them out, and looks at what people want of the connector.

Signals are taken between transactions, in the order of their numbers; the offset remembers the last one. Whatever is wrong with
a signal is its answer, never an error of the run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core import actions, permissions
from airflow_provider_cdc.core.events import CREATE, DELETE, LogBlock, RowBlock
from airflow_provider_cdc.core.position import Scan
from airflow_provider_cdc.core.schema import TableId
from airflow_provider_cdc.core.seams import Control, Wanted
from airflow_provider_cdc.core.signals import WINDOW_CLOSE, WINDOW_OPEN, Fate, Refused, SentSignal, Signal, parse
from airflow_provider_cdc.core.telling import refuse

if TYPE_CHECKING:
    from airflow_provider_cdc.core.run import Run

log = logging.getLogger(__name__)

_REPORT_S = 1.0
"""How often the progress of a snapshot is written where people look."""


class Desk:
    """See the module."""

    def __init__(self, run: Run) -> None:
        self._run, self._store, self._name = run, run.parts.store, run.parts.name
        self._interval_s = run.config.signal_poll_interval_ms / 1000
        self._channels = set(run.config.signal_enabled_channels)
        self._found: list[SentSignal] = []
        self._ids: dict[int, str] = {}
        self._looked = self._reported = 0.0
        self._rows_then: tuple[float, int] = (time.monotonic(), 0)
        self.control: Control | None = None

    # -- what people want ---------------------------------------------------------------------------------------------

    def halted(self) -> bool:
        """Whether the run is to end; looks no more often than signals are polled for."""
        if time.monotonic() - self._looked >= self._interval_s:
            self._looked = time.monotonic()
            self._look_at_control()
        return self._run.parts.stop.requested

    def _look_at_control(self) -> None:
        control = self._store.control(self._name)
        if self._run.parts.stop.requested:
            return
        if control.wanted is not Wanted.RUNNING:
            log.warning("The connector was %s%s%s: ending.", control.wanted, _by(control), _why(control))
        elif control.restarts != self._run.parts.stop.restarts:
            log.warning("The connector is to be restarted%s%s: ending.", _by(control), _why(control))
        else:
            return
        self.control = control
        self._run.parts.stop.requested = True

    # -- the signal table ---------------------------------------------------------------------------------------------

    def rows(self, block: LogBlock, table: TableId) -> None:
        """Look for signals, and for the marks of windows, among the rows of a block."""
        for rows in block.rows:
            if rows.table.id == table:
                for id_, type_, data, op, origin in _signals(rows):
                    if type_ in (WINDOW_OPEN, WINDOW_CLOSE):
                        self._run.incremental.marker(id_, inserted=op == CREATE)
                    elif op == CREATE and "source" in self._channels:
                        self._found.append(SentSignal(id_, type_, data, "source", origin))
        if self._found and not block.open:
            self._looked = 0.0  # they are taken before the next transaction

    def void(self) -> None:
        """The open transaction was rolled back."""
        self._found.clear()

    def keep(self) -> None:
        """Record the signals whose rows were found; between transactions, before the offset moves behind the rows."""
        for sent in self._found:
            self._store.send(self._name, sent)
        self._found.clear()

    # -- taking -------------------------------------------------------------------------------------------------------

    def look_if_due(self) -> None:
        if time.monotonic() - self._looked >= self._interval_s:
            self.look()

    def look(self) -> None:
        """Take what has come; between transactions only."""
        self._looked = time.monotonic()
        self._look_at_control()
        self.keep()
        for channel in self._run.parts.channels:
            signals = channel.poll()
            for sent in signals:
                self._store.send(self._name, sent)
            if signals:
                channel.acknowledge(signals)
        run = self._run
        waiting = list(self._store.signals(self._name, run.offset.signal))
        if not waiting:
            return
        run.commit()  # and not while a signal is carried out: trouble with what came before it is not the signal's
        for signal in waiting:
            self._take(signal)
            run.offset = run.offset.model_copy(update={"signal": signal.number})
        run.commit()
        run.scans.feed()

    def _take(self, signal: Signal) -> None:
        log.info(
            "Signal %s (number %d) from %s: %s.",
            signal.id or "without an id",
            signal.number,
            signal.channel,
            signal.type,
        )
        run = self._run
        if signal.channel not in self._channels | {"repair"}:
            refuse(run.batcher, signal, f"the channel {signal.channel} is not among signal.enabled.channels")
            return
        try:
            request = parse(signal)
            permissions.check(run.config, signal, request, run.source.POSITION_SIGNAL)
            message = actions.carry_out(run, signal, request)
        except Refused as e:
            log.warning("Signal %s is refused: %s", signal.id or signal.number, e)
            refuse(run.batcher, signal, str(e))
        except Exception as e:
            log.exception("Signal %s has failed; capture goes on.", signal.id or signal.number)
            refuse(run.batcher, signal, str(e) or repr(e), Fate.FAILED)
        else:
            if message is None:
                self._ids[signal.number] = signal.id
                self._store.fate(self._name, signal.number, Fate.RUNNING)
            else:
                run.batcher.answer(signal.number, Fate.DONE, message)

    # -- answers ------------------------------------------------------------------------------------------------------

    def failed(self, requests: set[int], reason: str) -> None:
        """Requests that could not be carried out to their end."""
        for number in requests:
            refuse(
                self._run.batcher, Signal(number, self._ids.get(number, ""), "execute-snapshot"), reason, Fate.FAILED
            )

    def report(self) -> None:
        """Show how far the table has come that is being read in chunks."""
        state = self._run.scans.state
        if not state.scans or time.monotonic() - self._reported < _REPORT_S:
            return
        scan = state.scans[0]
        self._reported = now = time.monotonic()
        then, rows = self._rows_then
        rate = max(scan.rows - rows, 0) / max(now - then, 1e-3)
        self._rows_then = now, scan.rows
        self._show(scan, rows_per_s=round(rate), after=scan.after, upto=scan.upto)

    def scan_ended(self, scan: Scan) -> None:
        """Show that a table is not read in chunks any more."""
        self._rows_then = time.monotonic(), 0
        self._show(scan)

    def _show(self, scan: Scan, **more: Any) -> None:
        left = sum(other.request == scan.request for other in self._run.scans.state.scans)
        chunk_rows = scan.chunk_rows or self._run.incremental.chunk_rows
        shown = {"table": scan.table, "tables": scan.tables, "left": left, "rows": scan.rows, "chunk_rows": chunk_rows}
        self._store.fate(self._name, scan.request, Fate.RUNNING, progress=shown | more)

    def progress(self, table: str, rows: int, total: int, left: int) -> None:
        """Show how far tables have come that are read whole."""
        requests = set(self._run.offset.snapshot.requests.values())
        for number in requests:
            shown = {"table": table, "rows": rows, "of_about": total, "left": left}
            self._store.fate(self._name, number, Fate.RUNNING, progress=shown)


def _signals(rows: RowBlock) -> list[tuple[str, str, str | None, int, str]]:
    """Id, type, data, operation and origin of the rows of a signal table; whatever its columns are called."""
    found = []
    names = rows.table.names[:3]
    after = rows.after.to_pylist() if rows.after is not None else [None] * len(rows)
    before = rows.before.to_pylist() if rows.before is not None else [None] * len(rows)
    places = {name: column.to_pylist() for name, column in rows.source.items()}
    for i, op in enumerate(rows.op.tolist()):
        row = before[i] if op == DELETE else after[i]
        if op not in (CREATE, DELETE) or row is None:
            continue
        values = [row.get(name) for name in names] + [None] * (3 - len(names))
        id_, type_, data = values = [None if v is None else _text(v) for v in values]
        place = {name: column[i] for name, column in places.items() if column[i] is not None and name != "query"}
        # a log that was reset begins to number its places anew: they alone do not tell two rows apart
        place |= {"made_us": int(rows.ts_us[i]), "holds": hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]}
        origin = "source:" + json.dumps(place, sort_keys=True, default=str)
        found.append((id_ or "", (type_ or "").strip(), data, op, origin))
    return found


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _by(control: Control) -> str:
    return f" by {control.by}" if control.by else ""


def _why(control: Control) -> str:
    return f" ({control.reason})" if control.reason else ""
