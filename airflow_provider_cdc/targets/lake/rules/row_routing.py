"""Which table a row of a source table goes to, where a rule brings its rows to several tables.

To its table, a *place* is a filter: a row that goes elsewhere does not pass. So a row whose place changes leaves the one table as it would leave a
filtered one, and enters the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.table_rules import TableRule
from airflow_provider_cdc.targets.lake.rules.projection import Computed, Condition


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A table that rows of one source table go to.

    :param step: the number of the route's step that takes them, from 0 on; -1: none does
    :param value: what its ``by`` gives for them
    """

    step: int
    value: str | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Place:
        """The way back from :meth:`document`."""
        return cls(int(document["step"]), document["value"])

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {"step": self.step, "value": self.value}

    def meaning(self, rule: TableRule) -> dict[str, Any]:
        """What decides which rows it has, as a part of :meth:`TableRule.meaning`: later steps are none of it."""
        if rule.outbox is not None or self == ELSE:
            return {"place": self.recorded()}
        return {"route": [step.meaning() for step in rule.route[: self.step + 1]], "place": self.recorded()}

    def recorded(self) -> dict[str, Any]:
        """What tells it from other places of a route."""
        return {"otherwise": True} if self.step < 0 else {"step": self.step, "value": self.value}


ELSE = Place(-1)
"""Of rows that no step takes."""


@dataclass(frozen=True, slots=True)
class Taking:
    """A step of a route, checked against a table."""

    when: Computed | None
    by: Computed | None

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(part.needs for part in (self.when, self.by) if part is not None))

    def text(self) -> Expression:
        """What ``by`` gives."""
        return F.lit(None).cast("string") if self.by is None else self.by.expression().cast("string")

    def takes(self) -> Expression:
        """Whether it takes a row, if none before it does."""
        parts = [] if self.when is None else [F.coalesce(self.when.expression(), F.lit(col=False))]
        if self.by is not None:
            parts.append(F.coalesce(self.text() != "", F.lit(col=False)))
        return reduce(and_, parts, F.lit(col=True))


@dataclass(frozen=True, slots=True)
class Routing:
    """The steps of a route, in their order."""

    steps: tuple[Taking, ...]

    @property
    def needs(self) -> frozenset[str]:
        """Columns of the source."""
        return frozenset().union(*(step.needs for step in self.steps))

    def step(self) -> Expression:
        """The number of the step that takes a row; :data:`ELSE`'s if none does."""
        return F.coalesce(*[F.when(step.takes(), F.lit(i)) for i, step in enumerate(self.steps)], F.lit(ELSE.step))

    def value(self) -> Expression:
        """What the ``by`` of this step gives; NULL if it has none."""
        texts = [F.when(self.step() == i, step.text()) for i, step in enumerate(self.steps) if step.by is not None]
        return F.coalesce(*texts) if texts else F.lit(None).cast("string")


@dataclass(frozen=True, slots=True)
class Going:
    """The condition that rows go to a place. Values reach Spark by its functions, never within a SQL text.

    :param filter: of the rule, which comes first
    """

    routing: Routing
    place: Place
    filter: Condition | None = None
    what: str = "route"

    @property
    def needs(self) -> frozenset[str]:
        return self.routing.needs | (frozenset() if self.filter is None else self.filter.needs)

    def expression(self) -> Expression:
        """A condition over the source's columns."""
        found = self.routing.step() == self.place.step
        if self.place.value is not None:
            found &= self.routing.value().eqNullSafe(F.lit(self.place.value))
        return found if self.filter is None else F.coalesce(self.filter.expression(), F.lit(col=False)) & found
