"""Records the signals that come from outside of Airflow, up to a limit.

Writers of a signal table, a signal file or a topic must not be able to fill the state database. Beyond the limits of a channel, a signal is recorded as
refused, with the beginning of its data; beyond twice the limits it is only counted in the log.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.state_records import SignalCounts
from airflow_provider_cdc.core.spi.store_interfaces import StateStore

log = logging.getLogger(__name__)

MOST_CHARACTERS: Final = 16 << 20
"""Characters of data that the signals of one channel may have in an hour."""
STORED_CHARACTERS: Final = 2000
"""Characters of the data of a refused signal that are stored."""
_HOUR: Final = timedelta(hours=1)


def shorten_data(data: str | None) -> tuple[str | None, str]:
    """Shorten the data of a refused signal. Returns it with a sentence about its size and digest, or with an empty text if it is short.

    >>> shorten_data("x" * 2001)[1][:68]
    'Its data has 2,001 characters, of which the first 2,000 are stored; '
    """
    if data is None or len(data) <= STORED_CHARACTERS:
        return data, ""
    digest = hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()
    return data[
        :STORED_CHARACTERS
    ], f"Its data has {len(data):,} characters, of which the first {STORED_CHARACTERS:,} are stored; SHA-256 {digest}."


@dataclass(slots=True)
class _Held:
    """A signal that waits to be recorded.

    :param note: about data that was shortened, since the signal is beyond a limit; ``None``: it is whole
    """

    signal: SentSignal
    note: str | None = None


class SignalIntake:
    """Takes the signals of one channel, and records them up to its limits (``signal.limit.*``).

    :param channel: name of the channel
    """

    def __init__(self, connector: str, channel: str, config: ConnectorConfig, store: StateStore) -> None:
        self._connector, self._channel, self._store = connector, channel, store
        self._per_hour, self._waiting = config.signal_limit_per_hour, config.signal_limit_waiting
        self._held: list[_Held] = []
        self._characters = self._uncounted = 0

    @property
    def has_unrecorded_signals(self) -> bool:
        """True if signals were added that are not recorded yet."""
        return bool(self._held or self._uncounted)

    def add(self, signals: Sequence[SentSignal]) -> None:
        """Add signals, in memory. Of more than can be recorded, only the number is kept."""
        for signal in signals:
            size = len(signal.data or "")
            if len(self._held) >= 2 * self._per_hour:
                self._uncounted += 1
            elif len(self._held) < self._per_hour and self._characters + size <= MOST_CHARACTERS:
                self._characters += size
                self._held.append(_Held(signal))
            else:
                data, note = shorten_data(signal.data)
                self._held.append(_Held(replace(signal, data=data), note))

    def discard(self) -> None:
        """Discard the signals that are not recorded."""
        self._held, self._characters, self._uncounted = [], 0, 0

    def record(self) -> None:
        """Record the signals that were added.

        :raises StateUnavailable: the state database cannot be reached; the signals can be recorded again
        """
        if not self.has_unrecorded_signals:
            return
        counts = self._store.count_signals(self._connector, self._channel, datetime.now(UTC) - _HOUR)
        refused, dropped = 0, self._uncounted
        for held in self._held:
            reason = self._find_refusal(held, counts)
            if reason is None:
                self._store.send(self._connector, held.signal)
                counts = counts.add(len(held.signal.data or ""))
                continue
            refused += 1
            if counts.recent >= 2 * self._per_hour:
                dropped += 1
                continue
            data, note = shorten_data(held.signal.data)
            text = " ".join(part for part in (reason, held.note or note) if part)
            self._store.send(self._connector, replace(held.signal, data=data), refusal=text)
            counts = counts.add(len(data or ""), waiting=0)
        if refused or dropped:
            log.warning(
                "%d signals of the channel %s were refused: the limits of signal.limit.per.hour=%d or signal.limit.waiting=%d are reached. %d of them are not "
                "recorded. Capture continues.", refused + self._uncounted, self._channel, self._per_hour, self._waiting, dropped,
            )  # fmt: skip
        self.discard()

    def _find_refusal(self, held: _Held, counts: SignalCounts) -> str | None:
        remedy = "Send it again later, or raise the limit."
        if counts.waiting >= self._waiting:
            return f"{counts.waiting:,} signals of the channel {self._channel} are waiting already (signal.limit.waiting). {remedy}"
        if counts.recent >= self._per_hour:
            return f"The channel {self._channel} has brought {counts.recent:,} signals within an hour (signal.limit.per.hour). {remedy}"
        if held.note is not None or counts.characters + len(held.signal.data or "") > MOST_CHARACTERS:
            return f"The signals of the channel {self._channel} within an hour have more than {MOST_CHARACTERS:,} characters of data. Send it again later."
        return None


__all__ = ["MOST_CHARACTERS", "STORED_CHARACTERS", "SignalIntake", "shorten_data"]
