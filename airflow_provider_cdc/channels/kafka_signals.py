"""The signal channel ``kafka``: messages of ``signal.kafka.topic`` (Debezium connector documents, "Kafka signaling channel").

A message counts if its key is ``topic.prefix``; its value is a JSON object. The group's offset is committed when signals are
recorded in the state tables, and a message that is read twice has the same origin both times: so none is lost or doubled. One
run of a connector is alive at a time, so partitions are assigned and not shared out among a group's members.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.channels.signal_parser import read_message
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError, TransientError
from airflow_provider_cdc.core.kafka_client_security import check_client_security
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.signals.signal_request_parser import LARGEST

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

log = logging.getLogger(__name__)

_START_S: Final = 5.0
"""Seconds to wait for the first connection before capture begins: a short run would otherwise be over by then."""
_END_S: Final = 3.0
"""Seconds to wait for the last commit."""
_AT_ONCE: Final = 100
_OURS: Final = {
    "bootstrap.servers": "set signal.kafka.bootstrap.servers",
    "group.id": "set signal.kafka.groupId",
    "enable.auto.commit": "the channel commits offsets when signals are recorded",
    "enable.auto.offset.store": "the channel commits offsets when signals are recorded",
    "enable.partition.eof": "the channel would treat the end of a partition as an error",
    "key.deserializer": "keys are strings",
    "value.deserializer": "values are strings with JSON objects",
    "sasl.jaas.config": "Java only: set signal.consumer.sasl.username, and signal.consumer.sasl.password in the Airflow connection",
    "ssl.truststore.location": "Java only: set signal.consumer.ssl.ca.location to a PEM file",
    "ssl.truststore.password": "Java only: set signal.consumer.ssl.ca.location to a PEM file",
}
"""Properties of the consumer that cannot be passed on → the alternative."""


class _TopicMissing(TransientError):
    """The topic does not exist yet."""


class KafkaChannel:
    """Signals from a topic.

    :raises ConfigError: a property of the consumer cannot be used, or the client library is not installed
    """

    def __init__(self, config: ConnectorConfig, connector: str) -> None:
        self._key = config.topic_prefix
        self._topic = config.signal_kafka_topic or f"{config.topic_prefix}-signal"
        self._brokers = config.signal_kafka_bootstrap_servers
        self._timeout_s = config.signal_kafka_poll_timeout_ms / 1000
        self._assigned = self._closed = False
        self._first = True
        """Whether nothing has been fetched yet: later, messages that have come are there without waiting."""
        self._down: str | None = None
        self._waiting: list[SentSignal] = []
        self._next: dict[int, int] = {}
        """Partition → offset behind the last message that was read."""
        self._requested_offsets: dict[int, int] = {}
        """Partition → offset that was last handed over to be committed."""
        self._commit_trouble = ""
        self._consumer = self._create_consumer(config, connector)
        log.info("Connector %s reads signals from the topic %s of %s.", connector, self._topic, self._brokers)
        self._begin()

    def poll(self) -> Sequence[SentSignal]:
        """Read new messages; see :meth:`airflow_provider_cdc.core.spi.store_interfaces.SignalChannel.poll`.

        Waits as long as ``signal.kafka.poll.timeout.ms`` says, the first time and while the brokers do not answer.

        :raises TransientError: brokers or topic cannot be reached
        """
        if self._waiting:
            return self._waiting
        if not self._assigned or self._down is not None:
            self._assign(max(self._timeout_s, 0.05))
        trouble: KafkaError | None = None
        messages = self._consumer.consume(_AT_ONCE, timeout=self._timeout_s if self._first else 0)
        self._first = False
        for message in messages:
            if (error := message.error()) is None:
                self._read(message)
            else:
                trouble = error
        if trouble is not None and not self._waiting:
            self._assigned = False
            raise self._unreachable(trouble)
        self._commit()
        return self._waiting

    def acknowledge(self, signals: Sequence[SentSignal]) -> None:
        origins = {signal.origin for signal in signals}
        self._waiting = [signal for signal in self._waiting if signal.origin not in origins]
        self._commit()

    def close(self) -> None:
        """Send commits that are under way, then close.

        If one is lost, its signals are read, and known, once more.
        """
        if self._closed:
            return
        self._closed = True
        # without brokers the client would wait for them, for minutes
        closing = threading.Thread(target=self._consumer.close, name="cdc-kafka-close", daemon=True)
        closing.start()
        closing.join(_END_S)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._next[partition] = offset + 1
        key = _text(message.key())
        if key != self._key:
            log.info("Ignoring the message %s: its key is %.100r, not %r.", _location(message), key, self._key)
            return
        # an offset alone is not enough: a topic that is deleted and made again counts from 0
        origin = f"kafka:{self._topic}:{partition}:{offset}@{message.timestamp()[1]}"
        text = (_text(message.value()) or "")[: 8 * LARGEST]
        self._waiting.append(read_message(text, channel="kafka", where=_location(message), origin=origin))

    # -- committing ---------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit the offsets of read messages, in the background, when all of them are recorded."""
        from confluent_kafka import TopicPartition

        if self._waiting or self._requested_offsets == self._next:
            return
        self._requested_offsets = dict(self._next)
        offsets = [
            TopicPartition(self._topic, partition, offset) for partition, offset in self._requested_offsets.items()
        ]
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        trouble = error or next((p.error for p in partitions if p.error is not None), None)
        if trouble is None:
            self._commit_trouble = ""
            return
        self._requested_offsets = {}
        if self._commit_trouble != trouble.str():
            self._commit_trouble = trouble.str()
            log.warning(
                "The offset in the topic %s could not be committed for the group; signals may be read again, but duplicates are recognized: %s",
                self._topic, trouble.str(),
            )  # fmt: skip

    # -- connecting ---------------------------------------------------------------------------------------------------

    def _create_consumer(self, config: ConnectorConfig, connector: str) -> Consumer:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as e:
            raise ConfigError(
                f"The signal channel kafka needs the package confluent-kafka, which is not installed: {e}",
                remedy="pip install 'airflow-provider-cdc[kafka]'",
            ) from None
        passed = {name: secret.get_secret_value() for name, secret in config.signal_consumer.items()}
        if wrong := sorted(set(passed) & set(_OURS)):
            lines = "\n".join(f"  signal.consumer.{name}: {_OURS[name]}" for name in wrong)
            raise ConfigError(f"Properties of the signal consumer cannot be used:\n{lines}")
        check_client_security(passed, "signal.consumer.", "The signal consumer")
        settings: dict[str, Any] = {
            "client.id": f"{connector}-signal",
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 8192,
            "log_level": 0,  # errors come by the callback
            **passed,
            "bootstrap.servers": self._brokers,
            "group.id": config.signal_kafka_group_id,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }
        try:
            return Consumer(settings)
        except (KafkaException, TypeError, ValueError) as e:
            text = e.args[0].str() if isinstance(e, KafkaException) else str(e)
            raise ConfigError(
                f"The signal consumer cannot be created with the properties signal.consumer.*: {text}",
                remedy="use properties of librdkafka after the prefix",
            ) from None

    def _on_error(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        if error.fatal() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            self._down = error.str()  # the next poll makes sure: an idle connection that was closed says this too

    def _begin(self) -> None:
        """Wait a moment until messages can be read. If they cannot, the first poll logs why."""
        until = time.monotonic() + _START_S
        while (left := until - time.monotonic()) > 0:
            try:
                return self._assign(left)
            except _TopicMissing:
                return None
            except TransientError:  # a broker that has just begun needs a moment to find the group's offsets
                time.sleep(min(0.1, left))
        return None

    def _assign(self, timeout_s: float) -> None:
        """Connect, find the topic, and continue from the group's offset.

        :raises TransientError: there are no brokers, or there is no topic, at the moment
        """
        from confluent_kafka import KafkaException, TopicPartition

        until = time.monotonic() + timeout_s
        try:
            topic = self._consumer.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
            if topic.error is not None:
                raise self._unreachable(topic.error)
            if not self._assigned:
                partitions = [TopicPartition(self._topic, partition) for partition in sorted(topic.partitions)]
                partitions = self._consumer.committed(partitions, timeout=max(until - time.monotonic(), 0.05))
                self._next, self._requested_offsets = {}, {}
                for partition in partitions:
                    self._check(partition, max(until - time.monotonic(), 0.05))
                self._consumer.assign(partitions)
                self._first = True
        except KafkaException as e:
            raise self._unreachable(e.args[0]) from None
        if not self._assigned and len(topic.partitions) > 1:
            log.warning(
                "The topic %s has %d partitions, but signals keep their order only within one partition. Use a topic with one partition.",
                self._topic, len(topic.partitions),
            )  # fmt: skip
        self._assigned, self._down = True, None

    def _check(self, committed: TopicPartition, timeout_s: float) -> None:
        """Warn if messages were deleted before they were read."""
        if committed.offset < 0:
            return
        # committed once more: brokers forget the offsets of a group after some time
        self._next[committed.partition] = committed.offset
        first, _ = self._consumer.get_watermark_offsets(committed, timeout=timeout_s)
        if first > committed.offset:
            log.warning(
                "Signals may be lost: the broker has deleted the offsets from %d to %d of %s, which were not read yet. Send these "
                "signals again.", committed.offset, first - 1, self._topic,
            )  # fmt: skip

    def _unreachable(self, error: KafkaError) -> TransientError:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return _TopicMissing(
                f"The topic {self._topic} does not exist yet.",
                where=self._brokers,
                remedy="create it, with one partition",
            )
        return TransientError(
            f"The topic {self._topic} cannot be read: {self._down or error.str()}",
            where=self._brokers,
            remedy="check that the brokers are running and that signal.kafka.bootstrap.servers and signal.consumer.* are correct",
        )


def _location(message: Message) -> str:
    return f"{message.topic()} partition {message.partition()} offset {message.offset()}"


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


__all__ = ["KafkaChannel"]
