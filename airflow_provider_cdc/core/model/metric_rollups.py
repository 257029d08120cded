"""What of a connector's metrics is kept of a day and of a week: the pieces of five minutes of :mod:`.metrics_last_hour`, put together to longer ones the older they get.

A week takes 57 pieces and a day 49, whatever happens in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow_provider_cdc.core.model.metric_samples import Histogram
from airflow_provider_cdc.core.model.metrics_last_hour import PIECE_S, Piece


class Span(NamedTuple):
    """A time that charts show.

    :param seconds: how long it is
    :param piece_s: how long each of its pieces is, in seconds
    """

    seconds: int
    piece_s: int

    def since(self, now_s: float) -> int:
        """When its first piece begins, in seconds since 1970."""
        return int((now_s - self.seconds) // self.piece_s) * self.piece_s


SPANS: Mapping[str, Span] = {
    "hour": Span(3600, PIECE_S),
    "day": Span(86_400, 1800),
    "week": Span(7 * 86_400, 10_800),
}
"""``hour`` is what :mod:`.metrics_last_hour` keeps."""
LONGER = tuple(name for name, span in SPANS.items() if span.piece_s > PIECE_S)

Kept = Mapping[str, Sequence[Mapping[str, Any]]]
"""Name of a span → its pieces as documents, oldest first."""


def closed(recent: Sequence[Mapping[str, Any]], now_s: float) -> Piece | None:
    """The piece of five minutes that is over by now and was not folded yet: the last one; every one before it was folded when the next one began.

    :param recent: as :func:`.metrics_last_hour.continued` returned them the last time
    """
    if not recent or recent[-1]["at"] >= int(now_s // PIECE_S) * PIECE_S:
        return None
    return Piece.of(recent[-1])


def folded(kept: Kept, piece: Piece, now_s: float) -> dict[str, list[dict[str, Any]]]:
    """What is kept of the longer spans after one more piece of five minutes is over.

    :param kept: as this returned it the last time
    """
    return {
        name: [one.document() for one in joined(_pieces(kept, name), [piece], SPANS[name], now_s)] for name in LONGER
    }


def pieces_of(name: str, kept: Kept, recent: Sequence[Mapping[str, Any]], now_s: float) -> list[Piece]:
    """The pieces of a span up to now, oldest first.

    :param name: of :data:`SPANS`
    :param recent: the pieces of five minutes, of which only the last one is not in ``kept`` yet
    """
    span = SPANS[name]
    if name in LONGER:
        return joined(_pieces(kept, name), [Piece.of(one) for one in recent[-1:]], span, now_s)
    return [Piece.of(one) for one in recent if one["at"] >= span.since(now_s)]


def joined(before: Sequence[Piece], more: Sequence[Piece], span: Span, now_s: float) -> list[Piece]:
    """Pieces of a span, with shorter ones added to them; those that are too old are left out."""
    found = {piece.at: piece for piece in before if piece.at >= span.since(now_s)}
    for piece in more:
        at = piece.at // span.piece_s * span.piece_s
        if at >= span.since(now_s):
            found[at] = _sum(found.get(at, Piece(at)), piece)
    return [found[at] for at in sorted(found)]


def _pieces(kept: Kept, name: str) -> list[Piece]:
    return [Piece.of(one) for one in kept.get(name, ())]


def _sum(one: Piece, other: Piece) -> Piece:
    classes = [a + b for a, b in zip(one.freshness.classes, other.freshness.classes, strict=True)]
    worst = max((w for w in (one.worst, other.worst) if w is not None), key=lambda w: w[1], default=None)
    lags = [s for s in (one.lag_s, other.lag_s) if s is not None]
    cpus = [s for s in (one.cpu_s, other.cpu_s) if s is not None]
    return Piece(
        one.at,
        one.events + other.events,
        Histogram(classes, one.freshness.total + other.freshness.total),
        worst,
        max(lags, default=None),
        sum(cpus) if cpus else None,
    )


__all__ = ["LONGER", "SPANS", "Kept", "Span", "closed", "folded", "joined", "pieces_of"]
