"""Which topics a sink takes."""

from __future__ import annotations

import re

from airflow_provider_cdc.sink.config import SinkConfig


def chosen(topic: str, config: SinkConfig) -> bool:
    """Whether the table of a topic is kept; all are if nothing is said.

    >>> chosen("shop.orders", SinkConfig.parse({"topics": "shop.customers"}))
    False
    """
    if config.topics:
        return topic in config.topics
    return config.topics_regex is None or re.fullmatch(config.topics_regex, topic) is not None
