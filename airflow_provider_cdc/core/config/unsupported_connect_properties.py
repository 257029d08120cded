"""Properties of Kafka Connect and of Debezium's engine, which users have in existing properties files.

They belong to the runtime of a connector, not to the connector: all sources treat them alike. A trailing ``*`` matches a
prefix, as in :class:`~airflow_provider_cdc.core.config.base_configuration.Configuration`. This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

from typing import Final

_NO_RECORDS = (
    "the change log keeps events in their own types; `airflow cdc events` prints them as JSON, with and without schemas"
)
_OFFSETS = "offsets are kept in the state tables"
_ORDER = "events are in the order of the source's log, always"

ACCEPTED: Final = {
    "connector.plugin.version": "the version is that of the installed package",
    "tasks.max.enforce": "a connector is always one capture task",
    "config.action.reload": "a run takes what the connection says when it begins",
    "key.converter*": _NO_RECORDS,
    "value.converter*": _NO_RECORDS,
    "header.converter*": _NO_RECORDS,
    "internal.key.converter*": _NO_RECORDS,
    "internal.value.converter*": _NO_RECORDS,
    "errors.retry.timeout": "tasks are tried again as Airflow's retries say",
    "errors.log.*": "each error is in the log of its task",
    "topic.creation.*": "there are no Kafka topics to create",
    "exactly.once.support": "events are captured exactly once, always",
    "transaction.boundary*": "a batch holds whole transactions, always",
    "offsets.storage.topic": _OFFSETS,
    "offset.storage*": _OFFSETS,
    "offset.flush.*": "the offset moves with each batch: see batch.max.rows, batch.max.bytes and batch.max.ms",
    "offset.commit.policy": "the offset moves with each batch: see batch.max.rows, batch.max.bytes and batch.max.ms",
    "producer.override.*": "capture writes files, it is no Kafka client",
    "consumer.override.*": "capture writes files, it is no Kafka client",
    "admin.override.*": "capture writes files, it is no Kafka client",
    "record.processing.*": _ORDER,
}
"""Accepted with a warning: without them the result is the same."""

REFUSED: Final = {
    "transforms*": "single message transforms belong to Kafka Connect; rules for target tables do what the documented ones do (docs/targets.md)",
    "predicates*": "predicates choose records for transforms of Kafka Connect, and there are none here",
    "errors.tolerance": "an event that cannot be read is always an error",
}
"""Refused: with them, users expect other events."""
