"""Names topics, and makes sure that each belongs to one table.

A table's topic is ``<topic.prefix>.<namespace>.<table>`` with ``topic.delimiter`` between the parts; characters that a Kafka topic
cannot have become ``_``, and names that are too long are cut ("Topic names" of the Debezium connector documents). So two
tables may get the same topic. Files, targets and consumers know a table by its topic alone: the rows of both would be mixed, as Debezium does.
Here that is refused.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.model.table_schema import TableId

LONGEST = 249
"""Characters of a topic's name, as Kafka allows them."""
_INVALID = re.compile(r"[^A-Za-z0-9._-]")


def sanitize_name(name: str) -> str:
    """Return a name as a topic can have it.

    >>> sanitize_name("shop.inventory.order items")
    'shop.inventory.order_items'
    """
    # a character beyond the sixteen bits of Java's is two of them
    return _INVALID.sub(lambda match: "_" if match[0] <= "\uffff" else "__", name)[:LONGEST]


class TopicNames:
    """The topics of one connector.

    >>> topics = TopicNames(ConnectorConfig.parse({"topic.prefix": "p", "topic.delimiter": "_"}))
    >>> topics.claim_topic(TableId(namespace="a_b", name="c"))
    'p_a_b_c'
    >>> topics.claim_topic(TableId(namespace="a", name="b_c"))
    Traceback (most recent call last):
    airflow_provider_cdc.core.errors.ConfigError: The tables a_b.c and a.b_c would both have the topic p_a_b_c...
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._owners: dict[str, TableId] = {}
        self._reserved = _reserved(config)

    def resolve_topic(self, table: TableId) -> str:
        """Return the topic that a table has."""
        config = self._config
        return sanitize_name(config.topic_delimiter.join((config.topic_prefix, table.namespace, table.name)))

    def reserve_topics(self, tables: Iterable[TableId]) -> None:
        """Reserve the topics of tables that were ever captured, in this order: a topic stays that of its table."""
        for table in tables:
            self._owners.setdefault(self.resolve_topic(table), table)

    def claim_topic(self, table: TableId) -> str:
        """Return the topic of a table that is captured.

        :raises ConfigError: it is another one's
        """
        topic = self.resolve_topic(table)
        if topic in self._reserved:
            raise ConfigError(
                f"The table {table} would use the topic {topic}, which already holds {self._reserved[topic]}.",
                where=f"topic.prefix={self._config.topic_prefix}, topic.delimiter={self._config.topic_delimiter}",
                safe="No change of the table was captured; everything before is captured.",
                remedy=f"give that topic another name, or leave {table} out with {self._config.TABLES[1]}",
            )
        owner = self._owners.setdefault(topic, table)
        if owner != table:
            raise ConfigError(
                f"The tables {owner} and {table} would both have the topic {topic}, which would mix their rows in one table.",
                where=f"topic.prefix={self._config.topic_prefix}, topic.delimiter={self._config.topic_delimiter}",
                safe=f"No change of {table} was captured; everything before is captured.",
                remedy=f"leave {table} out with {self._config.TABLES[1]} and capture it with a separate connector; a new connector can "
                "use another topic.delimiter instead",
            )
        return topic


def _reserved(config: ConnectorConfig) -> dict[str, str]:
    """Topic → its content, of topics that are no table's.

    :raises ConfigError: two of them have one name
    """
    topics: dict[str, str] = {}
    for enabled, topic, content in (
        (config.shows_schema_changes(), config.topic_prefix, "the schema changes (topic.prefix)"),
        (
            config.provide_transaction_metadata,
            config.topic_delimiter.join((config.topic_prefix, config.topic_transaction)),
            "the transactions (topic.transaction)",
        ),
        (
            "sink" in config.notification_enabled_channels,
            config.notification_sink_topic_name or "",
            "the notifications (notification.sink.topic.name)",
        ),
    ):
        if enabled and topic in topics:
            raise ConfigError(
                f"Two kinds of records would share the topic {topic}: {topics[topic]} and {content}.",
                safe="Nothing was captured.",
                remedy="give one of them another name",
            )
        if enabled:
            topics[topic] = content
    return topics
