"""Defines the questions that core asks a configuration, whatever its source calls the answers.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

from airflow_provider_cdc.core.config.base_configuration import Configuration
from airflow_provider_cdc.core.config.property_enums import RewriteMode
from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.table_schema import Column, TableId


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns that are captured, and in which way; patterns match ``<namespace>.<table>.<column>``.

    :param include: patterns of columns that are captured; empty = all
    :param exclude: patterns of those that are not
    :param keys: keys of one's own, as ``message.key.columns`` writes them
    :param texts: property → patterns of the columns that it hides, cuts or replaces by pseudonyms
    :param salt: of pseudonyms, if it comes from the connection
    :param propagated: patterns of columns whose schemas name their type in the database
    :param propagated_types: the same by the type
    :param converters: converters that users have written, as ``converters`` names them: name, type and options of each
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    keys: str = ""
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    propagated: tuple[str, ...] = ()
    propagated_types: tuple[str, ...] = ()
    salt: str | None = field(default=None, repr=False)
    converters: tuple[Mapping[str, str], ...] = ()


class DefaultSourceConfig(Configuration):
    """The answers of a source that has nothing to say of what it does not have; others answer in their own words."""

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        """Field names of include and exclude lists of which only one may be set."""
        return []

    def table_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Include and exclude patterns of tables; they match ``<namespace>.<table>``."""
        return (), ()

    def column_rules(self) -> ColumnSelection:
        """Return which columns are captured, and how."""
        return ColumnSelection()

    def skips_unchanged(self) -> bool:
        """Return whether updates that change no captured column are left out."""
        return False

    def shows_schema_changes(self) -> bool:
        """Return whether schema changes are records of the JSON form, in the topic that is named like the prefix."""
        return False

    def rewrite_mode(self) -> RewriteMode:
        """Return the reaction to a schema change that has changed rows without an event."""
        return RewriteMode.SNAPSHOT

    def heartbeat_statement(self) -> str | None:
        """Return the statement that ``Source.execute_statement`` gets with each heartbeat."""
        return None

    @classmethod
    def changed_since(cls, table: str, column: str, moment: datetime, *, given: str | None, blocking: bool) -> str:
        """Build the condition of a signal for the rows of a table that have this moment, or a later one, in a column.

        :param moment: without a time zone, or in UTC
        :param given: another condition that rows have to fulfil
        :param blocking: for a snapshot of whole tables, whose conditions may be written in another way
        :raises ConfigError: there is no such condition
        """
        raise ConfigError(
            "This source does not support the condition 'changed since'.",
            safe="Nothing was sent.",
            remedy="use a filter instead, and leave 'changed since' empty",
        )

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Include and exclude patterns of databases or schemas, where the source has such properties."""
        return (), ()

    def in_scope(self, table: TableId) -> bool:
        """Return whether the log that is read has changes of a table at all, whatever the lists say."""
        return True

    def shows_more(self, before: Self, table: TableId) -> bool:
        """Return whether rows of a table have something now that they had not under ``before``.

        That is besides what the lists of columns decide.
        """
        return False

    def has_values(self, column: Column) -> bool:
        """Return whether values of a column are captured; otherwise they are unavailable, which is not null."""
        return True

    def format_listed_name(self, name: str) -> str:
        """Return a table's name as this connector's lists have it.

        :param name: as a check lists it, which belongs to no connector (:data:`airflow_provider_cdc.core.config.connector_config.NO_CONNECTOR`)
        """
        return name
