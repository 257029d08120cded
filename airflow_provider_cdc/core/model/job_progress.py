"""Progress of something that takes long: a snapshot, an apply, a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

ESTIMATE_AFTER_S, _ESTIMATE_PART = 120.0, 0.05


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress at a moment. Unknown values are ``None``.

    :param name: it is, as people call it: ``Snapshot``, ``Apply``
    :param where: which one of several at the same time, such as the target of an apply; empty if there is but one
    :param unit: of ``done`` and ``total``, plural: ``rows``
    :param per_s: of late, not since the beginning
    :param part: how much of all is done, 0 to 1
    :param left_s: seconds until the end, if it continues as of late; ``None`` until enough is done for an estimate
    :param now: the current step
    :param began_at: seconds since 1970
    :param at: as ``began_at``; the moment that this is about
    """

    name: str
    where: str
    unit: str
    done: float
    total: float | None
    per_s: float | None
    part: float | None
    left_s: float | None
    now: str
    began_at: float
    at: float

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> JobProgress:
        """Build the progress from its document.

        :raises KeyError: it is not such a document
        """
        return cls(**{field.name: document[field.name] for field in fields(cls)})

    @property
    def progress_text(self) -> str:
        """For people.

        >>> work.progress_text
        'Snapshot: 3,200,000 rows (24 %), 81,000 rows/s, about 2 min left; now shop.orders'
        """
        of = "" if self.total is None else f" of {self.total:,.0f}"
        percent = "" if self.part is None else f" ({int(self.part * 100)} %)"
        parts = [f"{self.name}: {self.done:,.0f}{of} {self.unit}{percent}"]
        if self.per_s and self.per_s >= 0.05:
            parts.append(f"{self.per_s:,.{0 if self.per_s >= 10 else 1}f} {self.unit}/s")
        if self.left_s is not None:
            parts.append(f"about {format_duration(round_estimate(self.left_s))} left")
        return ", ".join(parts) + (f"; {self.now}" if self.now else "")


def can_estimate(part: float | None, elapsed_s: float) -> bool:
    """Check whether enough is done to estimate the time left: the first seconds are of connections, caches and small tables.

    >>> can_estimate(0.02, 20), can_estimate(0.02, 150), can_estimate(0.06, 20)
    (False, True, True)

    :param part: how much of all is done, 0 to 1
    """
    return part is not None and part > 0 and (elapsed_s >= ESTIMATE_AFTER_S or part >= _ESTIMATE_PART)


def round_estimate(seconds: float) -> float:
    """Round an estimate to what it is worth: two figures of a clock, such as 20 s, 7 min, 25 min or 3 h 30 min.

    >>> [round_estimate(seconds) for seconds in (2, 47, 130, 1_130, 12_800)]
    [10.0, 50.0, 120.0, 1200.0, 12600.0]
    """
    step = next(
        step for limit, step in ((110, 10), (600, 60), (7_200, 300), (172_800, 1_800), (inf, 21_600)) if seconds < limit
    )
    return float(max(round(seconds / step), 1 if seconds > 0 else 0) * step)


def format_duration(seconds: float) -> str:
    """Format how long something takes, in two units at most.

    >>> format_duration(8), format_duration(250), format_duration(11_400)
    ('8 s', '4 min', '3 h 10 min')
    """
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes} min"


__all__ = ["ESTIMATE_AFTER_S", "JobProgress", "can_estimate", "format_duration", "round_estimate"]
