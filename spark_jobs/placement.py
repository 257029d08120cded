"""Where the tables of topics are, and by which rules they are kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from airflow_provider_cdc.core.config.table_rules import PLAIN, TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from spark_jobs.locations import table_location
from spark_jobs.shape import Shape
from spark_jobs.shaping import shape
from spark_jobs.targets.base import NEVER, Target
from spark_jobs.view import View

log = logging.getLogger(__name__)


class Placement:
    """The tables of one connector: where they are, which topics share one, and what rules make of their rows.

    :param location: where tables are unless their rule says otherwise
    """

    def __init__(self, connector: str, location: str, rules: TableRules) -> None:
        self._connector, self._location, self._rules = connector, location, rules
        self._checked = False
        self._tables: dict[str, TableId] = {}

    def locations(self, view: View) -> dict[str, str]:
        """Topic → location of its table, for all topics of a view.

        :raises ConfigError: two tables would be at one location
        """
        locations: dict[str, str] = {}
        topics_by_location: dict[str, str] = {}
        for topic in sorted(view.topics):
            table, shared = view.table(topic), self.shared(view, topic)
            if table is None:
                location = view.known(topic)["location"]
            else:
                found = self._rules.match(table)
                template = found.rule.location or self._location
                location = table_location(template, self._connector, topic, table, found.groups)
                self._tables[topic] = table
            other = topics_by_location.setdefault(location, topic)
            if other != topic and not (shared and self.shared(view, other)):
                raise ConfigError(
                    f"The tables of {other} and {topic} would both be at {location}.",
                    safe="No table was changed.",
                    remedy="give the location {database} and {table}, or {topic}; or have them share a table by a rule with a shard column",
                )
            locations[topic] = location
        return locations

    def shared(self, view: View, topic: str) -> bool:
        """Whether the table of a topic has rows of other topics, too."""
        table = view.table(topic)
        return bool(view.known(topic).get("shared")) if table is None else bool(self._rules.of(table).shard)

    def shape(self, spark: SparkSession, topic: str, schema: TableSchema, strict: bool) -> Shape:
        """What the rule of a table makes of its rows."""
        return shape(spark, self._rules.match(schema.id), self._connector, topic, schema, strict=strict)

    def check(
        self, spark: SparkSession, view: View, locations: Mapping[str, str], open_table: Callable[[str], Target]
    ) -> None:
        """Check the rules of all tables that are new, or whose rules are, before any table is written; once.

        :raises ConfigError: a rule does not fit its table
        """
        if self._checked or not self._rules:
            return
        for topic in sorted(locations):
            schema, stands = view.schema(topic), view.stands.get(topic, {})
            there = stands.get("batch", NEVER) > NEVER and stands.get("known", True)
            if schema is None or self._rules.of(schema.id) is PLAIN or there:
                continue
            target = open_table(locations[topic])
            if target.exists() and target.rule():
                continue  # whether it is the rule that the table was made by, its own thread looks
            made = self.shape(spark, topic, schema, strict=True)
            target.check_columns([*made.types(schema), *made.flags()])
            target.check_layout(made.layout())
        for patterns in self._rules.unused(self._tables.values()):
            log.warning(
                "No table of %s is kept by the rule for %s: none matches, or an earlier rule does.",
                self._connector,
                patterns,
            )
        self._checked = True
