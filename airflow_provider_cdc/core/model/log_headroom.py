"""Distance of a connector from both ends of its source's log.

It says what the connector has still to read, and until when the log holds its position; and how long the source keeps its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_provider_cdc.core.model.job_progress import format_duration

BEHIND, GONE_AT = "LogBytesBehindSource", "LogGoneAtInSeconds"
"""Names of the metrics, in the context ``streaming``. The second one is a moment, in seconds since 1970, so that it says how long there is left however long ago it was
measured: of a connector that stands still, it comes nearer."""


@dataclass(frozen=True, slots=True)
class LogWindow:
    """The log of a source around a position.

    :param behind_bytes: of the log, between the position and its end; ``None``: not known
    :param gone_at_s: when the source removes the log at the position, if it continues as it is set up and as much is written as before, in seconds since
        1970; ``None``: not known, or never
    """

    behind_bytes: int | None = None
    gone_at_s: float | None = None

    def to_metrics(self) -> dict[str, float | int]:
        """Return it as metrics: an unknown value is -1."""
        return {
            BEHIND: -1 if self.behind_bytes is None else self.behind_bytes,
            GONE_AT: -1 if self.gone_at_s is None else round(self.gone_at_s, 3),
        }

    @classmethod
    def from_metrics(cls, values: Mapping[str, object], prefix: str = "") -> LogWindow:
        """From metrics, whose names may have a prefix.

        >>> LogWindow.from_metrics({"streaming.LogBytesBehindSource": 70.0}, "streaming.")
        LogWindow(behind_bytes=70, gone_at_s=None)
        """
        behind, gone_at = values.get(prefix + BEHIND), values.get(prefix + GONE_AT)
        return cls(
            int(behind) if isinstance(behind, int | float) and behind >= 0 else None,
            float(gone_at) if isinstance(gone_at, int | float) and gone_at >= 0 else None,
        )

    @property
    def gone_at(self) -> datetime | None:
        """The moment in UTC."""
        return None if self.gone_at_s is None else datetime.fromtimestamp(self.gone_at_s, UTC)


@dataclass(frozen=True, slots=True)
class LogRetention:
    """The time for which a source keeps its log.

    :param seconds: ``None``: without limit
    :param setting: the setting that decides it, with its value, in the words of the source
    """

    seconds: float | None
    setting: str

    def format_text(self) -> str:
        """Format it as a sentence for people.

        >>> LogRetention(864_000, "binlog_expire_logs_seconds=864000").format_text()
        'The source keeps its log for 10 d (binlog_expire_logs_seconds=864000).'
        """
        if self.seconds is None:
            return f"The source never removes its log ({self.setting})."
        if not self.seconds:
            return f"The source removes its log as soon as it can ({self.setting})."
        time = format_duration(self.seconds).removesuffix(" 0 h").removesuffix(" 0 min")
        return f"The source keeps its log for {time} ({self.setting})."


__all__ = ["BEHIND", "GONE_AT", "LogRetention", "LogWindow"]
