"""Routes: the table that a row of a source table goes to, where a rule brings its rows to several tables.

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

from airflow_provider_cdc.core.config.target_table_rules import TableRule
from airflow_provider_cdc.targets.lake.rules.projection import RowCondition, RuleExpression


@dataclass(frozen=True, slots=True, order=True)
class RouteBranch:
    """A table that rows of one source table go to.

    :param step: the number of the route's step that takes them, from 0 on; -1: none does
    :param value: the value of its ``by`` for them
    """

    step: int
    value: str | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RouteBranch:
        """Build a place from its :meth:`to_document`."""
        return cls(int(document["step"]), document["value"])

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"step": self.step, "value": self.value}

    def describe_meaning(self, rule: TableRule) -> dict[str, Any]:
        """Return the settings that decide which rows it has, as a part of :meth:`TableRule.to_comparable_form`.

        Later steps are none of it.
        """
        if rule.outbox is not None or self == ELSE:
            return {"place": self.to_identity()}
        return {
            "route": [step.to_comparable_form() for step in rule.route[: self.step + 1]],
            "place": self.to_identity(),
        }

    def to_identity(self) -> dict[str, Any]:
        """Return the entries that distinguish it from other places of a route."""
        return {"otherwise": True} if self.step < 0 else {"step": self.step, "value": self.value}


ELSE = RouteBranch(-1)
"""Of rows that no step takes."""


@dataclass(frozen=True, slots=True)
class CheckedRouteStep:
    """A step of a route, checked against a table."""

    when: RuleExpression | None
    by: RuleExpression | None

    @property
    def needed_columns(self) -> frozenset[str]:
        return frozenset().union(*(part.needs for part in (self.when, self.by) if part is not None))

    def build_branch_value(self) -> Expression:
        """Build the text that ``by`` gives."""
        return F.lit(None).cast("string") if self.by is None else self.by.build_expression().cast("string")

    def build_condition(self) -> Expression:
        """Build the condition that it takes a row, if none before it does."""
        parts = [] if self.when is None else [F.coalesce(self.when.build_expression(), F.lit(col=False))]
        if self.by is not None:
            parts.append(F.coalesce(self.build_branch_value() != "", F.lit(col=False)))
        return reduce(and_, parts, F.lit(col=True))


@dataclass(frozen=True, slots=True)
class CheckedRoute:
    """The steps of a route, in their order."""

    steps: tuple[CheckedRouteStep, ...]

    @property
    def needed_columns(self) -> frozenset[str]:
        """Columns of the source."""
        return frozenset().union(*(step.needed_columns for step in self.steps))

    def build_step_number(self) -> Expression:
        """Build the number of the step that takes a row; :data:`ELSE`'s if none does."""
        return F.coalesce(
            *[F.when(step.build_condition(), F.lit(i)) for i, step in enumerate(self.steps)], F.lit(ELSE.step)
        )

    def build_branch_value(self) -> Expression:
        """Build the value that the ``by`` of this step gives; NULL if it has none."""
        texts = [
            F.when(self.build_step_number() == i, step.build_branch_value())
            for i, step in enumerate(self.steps)
            if step.by is not None
        ]
        return F.coalesce(*texts) if texts else F.lit(None).cast("string")


@dataclass(frozen=True, slots=True)
class RouteCondition:
    """The condition that rows go to a place. Values reach Spark by its functions, never within a SQL text.

    :param filter: of the rule, which comes first
    """

    routing: CheckedRoute
    place: RouteBranch
    filter: RowCondition | None = None
    rule_option: str = "route"

    @property
    def needs(self) -> frozenset[str]:
        return self.routing.needed_columns | (frozenset() if self.filter is None else self.filter.needs)

    def build_expression(self) -> Expression:
        """Build a condition over the source's columns."""
        matches = self.routing.build_step_number() == self.place.step
        if self.place.value is not None:
            matches &= self.routing.build_branch_value().eqNullSafe(F.lit(self.place.value))
        return (
            matches if self.filter is None else F.coalesce(self.filter.build_expression(), F.lit(col=False)) & matches
        )
