"""Metrics of a connector that are kept of its first hour, of a day and of a week.

They are the pieces of five minutes of :mod:`.metrics_last_hour`, put together to longer ones the older they get. A producer that began less than an
hour ago has shorter pieces too: of ten seconds, and after ten minutes of one minute.

A week takes 57 pieces and a day 49, whatever happens in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow_provider_cdc.core.model.metric_samples import Histogram, MetricSeries
from airflow_provider_cdc.core.model.metrics_last_hour import PIECE_S, MetricsInterval


class ChartSpan(NamedTuple):
    """A time that charts show.

    :param seconds: how long it is
    :param piece_s: how long each of its pieces is, in seconds
    """

    seconds: int
    piece_s: int

    def compute_start(self, now_s: float) -> int:
        """Return when its first piece begins, in seconds since 1970."""
        return int((now_s - self.seconds) // self.piece_s) * self.piece_s


SPANS: Mapping[str, ChartSpan] = {
    "hour": ChartSpan(3600, PIECE_S),
    "day": ChartSpan(86_400, 1800),
    "week": ChartSpan(7 * 86_400, 10_800),
}
""":mod:`.metrics_last_hour` keeps ``hour``."""
LONGER = tuple(name for name, span in SPANS.items() if span.piece_s > PIECE_S)

FIRST_S = (ChartSpan(600, 10), ChartSpan(3600, 60))
"""Pieces of a young producer: until which age, and how long each is."""

Rollups = Mapping[str, Sequence[Mapping[str, Any]]]
"""Name of a span → its pieces as documents, oldest first."""


class ShortPieces(NamedTuple):
    """Pieces of one length, as documents, oldest first."""

    piece_s: int
    pieces: Sequence[Mapping[str, Any]]

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"piece_s": self.piece_s, "pieces": list(self.pieces)}


def finest_pieces(metrics: Mapping[str, Any]) -> ShortPieces:
    """Return the shortest pieces of the last hour that stored metrics have.

    >>> finest_pieces({"recent": []})
    ShortPieces(piece_s=300, pieces=[])
    """
    young = metrics.get("young")
    return ShortPieces(PIECE_S, metrics.get("recent", [])) if young is None else ShortPieces(**young)


def append_first_samples(
    before: Mapping[str, Any], series: Mapping[str, MetricSeries], now_s: float
) -> ShortPieces | None:
    """Return the short pieces of a young producer after more was measured; ``None`` if it is not young.

    :param before: its stored metrics; empty before its first ones
    :param series: topic → its metrics
    """
    if before and before.get("young") is None:
        return None
    young = finest_pieces(before) if before else ShortPieces(FIRST_S[0].piece_s, ())
    pieces = [MetricsInterval.from_document(piece) for piece in young.pieces]
    age_s = now_s - pieces[0].at if pieces else 0
    span = next((span for span in FIRST_S if age_s < span.seconds), None)
    if span is None:
        return None
    latest = MetricsInterval(int(now_s // span.piece_s) * span.piece_s)
    latest.add_samples(series)
    merged = merge_intervals([], [*pieces, latest], ChartSpan(FIRST_S[-1].seconds, span.piece_s), now_s)
    return ShortPieces(span.piece_s, [piece.to_document() for piece in merged])


def find_first_hour_length(producers: Sequence[ShortPieces], now_s: float) -> int | None:
    """Find the length of pieces that all producers of a young connector have, in seconds; ``None`` if one of them is not young.

    It is the same for all, so that producers that began one after the other compare.
    """
    begins = [short.pieces[0]["at"] for short in producers if short.piece_s < PIECE_S and short.pieces]
    if not begins or len(begins) < len(producers):
        return None
    return next((span.piece_s for span in FIRST_S if now_s - min(begins) < span.seconds), None)


def find_closed_interval(recent: Sequence[Mapping[str, Any]], now_s: float) -> MetricsInterval | None:
    """Find the piece of five minutes that is over by now and was not folded yet.

    That is the last one; every one before it was folded when the next one began.

    :param recent: as :func:`.metrics_last_hour.append_samples` returned them the last time
    """
    if not recent or recent[-1]["at"] >= int(now_s // PIECE_S) * PIECE_S:
        return None
    return MetricsInterval.from_document(recent[-1])


def merge_closed_interval(longer: Rollups, piece: MetricsInterval, now_s: float) -> dict[str, list[dict[str, Any]]]:
    """Return the pieces of the longer spans after one more piece of five minutes is over.

    :param longer: as this returned it the last time
    """
    return {
        name: [merged.to_document() for merged in merge_intervals(_pieces(longer, name), [piece], SPANS[name], now_s)]
        for name in LONGER
    }


def pieces_of(name: str, longer: Rollups, recent: Sequence[Mapping[str, Any]], now_s: float) -> list[MetricsInterval]:
    """Return the pieces of a span up to now, oldest first.

    :param name: of :data:`SPANS`
    :param recent: the pieces of five minutes, of which only the last one is not in ``longer`` yet
    """
    span = SPANS[name]
    if name in LONGER:
        return merge_intervals(
            _pieces(longer, name), [MetricsInterval.from_document(document) for document in recent[-1:]], span, now_s
        )
    return [
        MetricsInterval.from_document(document) for document in recent if document["at"] >= span.compute_start(now_s)
    ]


def merge_intervals(
    before: Sequence[MetricsInterval], more: Sequence[MetricsInterval], span: ChartSpan, now_s: float
) -> list[MetricsInterval]:
    """Pieces of a span, with shorter ones added to them; those that are too old are left out."""
    merged = {piece.at: piece for piece in before if piece.at >= span.compute_start(now_s)}
    for piece in more:
        at = piece.at // span.piece_s * span.piece_s
        if at >= span.compute_start(now_s):
            merged[at] = _sum(merged.get(at, MetricsInterval(at)), piece)
    return [merged[at] for at in sorted(merged)]


def _pieces(longer: Rollups, name: str) -> list[MetricsInterval]:
    return [MetricsInterval.from_document(document) for document in longer.get(name, ())]


def _sum(piece: MetricsInterval, other: MetricsInterval) -> MetricsInterval:
    classes = [a + b for a, b in zip(piece.freshness.classes, other.freshness.classes, strict=True)]
    worst = max((w for w in (piece.worst, other.worst) if w is not None), key=lambda w: w[1], default=None)
    lags = [s for s in (piece.lag_s, other.lag_s) if s is not None]
    cpus = [s for s in (piece.cpu_s, other.cpu_s) if s is not None]
    return MetricsInterval(
        piece.at,
        piece.events + other.events,
        Histogram(classes, piece.freshness.total + other.freshness.total),
        worst,
        max(lags, default=None),
        sum(cpus) if cpus else None,
    )


__all__ = [
    "FIRST_S",
    "LONGER",
    "SPANS",
    "ChartSpan",
    "Rollups",
    "ShortPieces",
    "append_first_samples",
    "find_closed_interval",
    "find_first_hour_length",
    "finest_pieces",
    "merge_closed_interval",
    "merge_intervals",
    "pieces_of",
]
