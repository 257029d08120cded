"""The selection of the topics that a sink takes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import TableState, TopicSelection
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig


def is_topic_selected(topic: str, config: DatabaseTargetConfig) -> bool:
    """Check whether the table of a topic is kept; all are by default.

    >>> is_topic_selected("shop.orders", DatabaseTargetConfig.parse({"topics": "shop.customers"}))
    False
    """
    return _selects(config.topics, config.topics_regex, topic)


def topic_selection(config: DatabaseTargetConfig) -> TopicSelection:
    """Return the topics that a sink takes, as its report records them.

    >>> topic_selection(DatabaseTargetConfig.parse({"topics": "shop.customers"}))
    {'topics': ['shop.customers'], 'regex': None}
    """
    return {"topics": [*config.topics], "regex": config.topics_regex}


def _selects(topics: Collection[str], regex: str | None, topic: str) -> bool:
    if topics:
        return topic in topics
    return regex is None or re.fullmatch(regex, topic) is not None


def newly_selected(
    changelog: ChangeLog,
    connector: str,
    before: TopicSelection,
    now: TopicSelection,
    table_states: Mapping[str, TableState],
    until: int,
) -> dict[str, int]:
    """Find the topics that a sink takes now and did not take before, of which it lacks batches.

    :param before: the selection of its last run
    :param table_states: topic → where its table was when it was taken last, as reports have it
    :param until: the batch of the other tables
    :return: topic → the last batch that its table has; 0 if it has none
    """
    selected, mark = dict[str, int](), changelog.read_truncation_marker(connector)
    batches = {topic: int(state["batch"]) for topic, state in table_states.items()}

    def lacks(topics: Collection[str], batch: int) -> None:
        for topic in topics:
            at = batches.get(topic, 0)
            if (
                topic not in selected
                and batch > at
                and _selects(**now, topic=topic)
                and not _selects(**before, topic=topic)
            ):
                selected[topic] = at

    if mark is not None:
        for topic in mark.topics or {}:
            if mark.may_lack(topic, batches.get(topic, 0)):
                lacks([topic], mark.first - 1)
    for manifest in changelog.read_manifests(connector, after=mark.first - 1 if mark is not None else 0, until=until):
        lacks({file.topic for file in manifest.files}, manifest.batch)
    return selected
