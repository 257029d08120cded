"""The trend of a capture's lag behind its source: it grows, shrinks or stays.

>>> find_lag_trend(1500.0, 900.0, [(0, 2400.0), (300, 2100.0), (600, 1800.0)], 300).text
'shrinks: caught up in about 25 min'
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from airflow_provider_cdc.core.model.job_progress import format_duration, round_estimate
from airflow_provider_cdc.services.dashboards.overview_models import LagTrend

_LATELY_S = 900.0
"""Time that a trend is about: longer ago, the source or the capture may have been another one."""
_SHORTEST_S = 60.0
"""Time that measurements have to cover, and the least lag that has a trend."""
_STEADY_PART, _STEADY_S = 0.02, 10.0
"""A lag stays if it changes by less in that time: this part of it, or these seconds."""


def find_lag_trend(
    lag_s: float | None, at_s: float, pieces: Sequence[tuple[float, float]], piece_s: float
) -> LagTrend | None:
    """Find the trend of a lag: the median slope of all pairs of measurements, which single ones cannot distort.

    :param lag_s: the last measurement, at ``at_s``, in seconds since 1970
    :param pieces: the start and the largest lag of each piece of time before it, oldest first
    :param piece_s: length of these pieces
    :return: ``None`` if the lag is small, or was measured for too short a time
    """
    if lag_s is None or lag_s < _SHORTEST_S:
        return None
    lately = [(at, lag) for at, lag in pieces if at_s - _LATELY_S <= at < at_s][-30:]
    if lately and lag_s >= lately[-1][1]:  # the largest lag of a piece is at its end, and otherwise at its start
        lately = [(min(at + piece_s, at_s), lag) for at, lag in lately]
    lately.append((at_s, lag_s))
    if at_s - lately[0][0] < _SHORTEST_S:
        return None
    slope = median((later - lag) / (after - at) for (at, lag), (after, later) in combinations(lately, 2) if after > at)
    if abs(slope) * _LATELY_S < max(_STEADY_S, _STEADY_PART * lag_s):
        return LagTrend(direction="stays", per_minute_s=0.0, text="stays the same")
    per_minute_s = round(slope * 60, 1)
    if slope > 0:
        return LagTrend(
            direction="grows", per_minute_s=per_minute_s, text=f"grows by {format_duration(per_minute_s)} a minute"
        )
    left_s = round_estimate(lag_s / -slope)
    text = f"shrinks: caught up in about {format_duration(left_s)}"
    return LagTrend(direction="shrinks", per_minute_s=per_minute_s, caught_up_in_s=left_s, text=text)


__all__ = ["find_lag_trend"]
