"""Properties of Kafka Connect and of Debezium's engine, which users have in existing properties files.

They belong to the runtime of a connector, not to the connector: all sources treat them alike. A trailing ``*`` matches a
prefix, as in :class:`~airflow_provider_cdc.core.config.base_configuration.Configuration`. This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

from typing import Final

_NO_RECORDS = "the change log stores events with their own types; `airflow cdc events` prints them as JSON, with or without schemas"
_OFFSETS = "the state tables store the offsets"
_ORDER = "events are always in the order of the source's log"

ACCEPTED: Final = {
    "connector.plugin.version": "the version is the version of the installed package",
    "tasks.max.enforce": "a connector always has one capture task",
    "config.action.reload": "a run reads the connection when it begins",
    "key.converter*": _NO_RECORDS,
    "value.converter*": _NO_RECORDS,
    "header.converter*": _NO_RECORDS,
    "internal.key.converter*": _NO_RECORDS,
    "internal.value.converter*": _NO_RECORDS,
    "errors.retry.timeout": "Airflow retries tasks, as its retries setting specifies",
    "errors.log.*": "the task log contains each error",
    "topic.creation.*": "capture creates no Kafka topics",
    "exactly.once.support": "events are always captured exactly once",
    "transaction.boundary*": "a batch always contains whole transactions",
    "offsets.storage.topic": _OFFSETS,
    "offset.storage*": _OFFSETS,
    "offset.flush.*": "the offset is committed with each batch: see batch.max.rows, batch.max.bytes and batch.max.ms",
    "offset.commit.policy": "the offset is committed with each batch: see batch.max.rows, batch.max.bytes and batch.max.ms",
    "producer.override.*": "capture writes files and is not a Kafka client",
    "consumer.override.*": "capture writes files and is not a Kafka client",
    "admin.override.*": "capture writes files and is not a Kafka client",
    "record.processing.*": _ORDER,
}
"""Accepted with a warning: without them the result is the same."""

REFUSED: Final = {
    "transforms*": "single message transforms belong to Kafka Connect; table rules replace the documented transforms (docs/targets/rules.md)",
    "predicates*": "predicates select records for transforms of Kafka Connect, which do not exist here",
    "errors.tolerance": "an event that cannot be read is an error, unless event.processing.failure.handling.mode has it set aside",
}
"""Refused: with them, users expect other events."""

HARMLESS: Final = {"transforms": ("",), "predicates": ("",), "errors.tolerance": ("none",)}
"""Values of refused properties with which users expect the same events."""
