"""Records of Kafka topics. The position is the connector's own: a consumer group has no part in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from airflow_provider_cdc.core.errors import ConfigError, PositionLost, SourceUnavailable
from airflow_provider_cdc.core.kafka_client_security import check_client_security
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.signals.regex_limits import RegexTooComplex, count_match_steps
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig, KeyFormat
from airflow_provider_cdc.sources.debezium.position import TopicsPosition
from airflow_provider_cdc.sources.debezium.record_feed_interface import PIECE_BYTES, RecordFeed, RecordLines

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message

_ANSWER_S: Final = 20.0
"""Seconds to wait for an answer of the brokers."""
_AT_ONCE: Final = 5000
_LONGEST_NAME: Final = 249
"""Characters of a topic's name at most, as Kafka has it."""
_NEW_TOPICS_S: Final = 30.0
"""Seconds between two looks for topics and partitions that have come."""
_SAFE: Final = "Everything up to the connector's position is captured; the offset is untouched."
Offsets = dict[str, dict[int, int]]


class TopicRecordLines(RecordLines):
    """Records of several partitions, those of each in their order.

    :param places: topic, partition and offset of each
    :param before: offsets before them
    """

    def __init__(
        self, lines: list[bytes], times: list[int], places: list[tuple[str, int, int]], before: Offsets
    ) -> None:
        self.lines, self.times, self._places, self._before = lines, times, places, before

    def position_from_count(self, count: int) -> TopicsPosition:
        offsets = {topic: dict(partitions) for topic, partitions in self._before.items()}
        for topic, partition, offset in self._places[:count]:
            offsets.setdefault(topic, {})[partition] = offset + 1
        return TopicsPosition(offsets)

    def describe_line(self, line: int) -> str:
        topic, partition, offset = self._places[line]
        return f"{topic} partition {partition} offset {offset}"

    def build_source_fields(self, lines: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        places = [self._places[line] for line in lines]
        return {
            "file": pa.nulls(len(places), pa.string()).dictionary_encode(),
            "partition": pa.array([partition for _, partition, _ in places], pa.int32()),
            "offset": pa.array([offset for _, _, offset in places], pa.int64()),
        }


class TopicFeed(RecordFeed):
    """The topics of ``topics`` or ``topics.regex``.

    :raises ConfigError: the client library is not installed, or does not take a property; or matching ``topics.regex`` may take for ever
    """

    def __init__(self, config: DebeziumConfig) -> None:
        self._config = config
        self._partitions: Offsets = {}
        self._open_consumer: Consumer | None = None
        self._trouble = ""
        _library()
        _check_pattern(config.topics_regex)

    def close(self) -> None:
        if self._open_consumer is not None:
            self._open_consumer.close()
            self._open_consumer = None

    # -- where --------------------------------------------------------------------------------------------------------

    def find_begin_position(self) -> TopicsPosition:
        return TopicsPosition({t: {p: low for p, (low, _) in ps.items()} for t, ps in self._watermarks().items()})

    def find_end_position(self) -> TopicsPosition:
        return TopicsPosition({t: {p: high for p, (_, high) in ps.items()} for t, ps in self._watermarks().items()})

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, TopicsPosition)
        watermarks = self._watermarks()
        for topic, partitions in position.offsets.items():
            if not self._config.is_topic_selected(topic):
                continue
            for partition, offset in partitions.items():
                there = watermarks.get(topic, {}).get(partition)
                if there is None:
                    raise self._lost(f"Partition {partition} of the topic {topic} no longer exists.", position)
                low, high = there
                if offset < low:
                    raise self._lost(
                        f"The brokers have deleted the offsets {offset} to {low - 1} of {topic} partition "
                        f"{partition} before they were read.",
                        position,
                    )
                if offset > high:
                    raise self._lost(
                        f"{topic} partition {partition} ends at offset {high}, but {offset} offsets were "
                        "read: the topic was recreated.",
                        position,
                    )

    def list_findings(self) -> list[tuple[str, str, bool]]:
        watermarks = self._watermarks()
        missing = [topic for topic in self._config.topics if topic not in watermarks]
        findings = [
            (
                f"The topic {topic} does not exist yet.",
                "no action is needed: its records are read when the topic exists",
                False,
            )
            for topic in missing
        ]
        if not watermarks and self._config.topics_regex is not None:
            findings.append(
                (
                    f"No topic matches topics.regex={self._config.topics_regex}.",
                    "correct the expression if it is wrong",
                    False,
                )
            )
        return findings

    def is_topic_ordered(self, topic: str) -> bool:
        return len(self._partitions.get(topic, ())) <= 1

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self, start: Position, until: Position | None, wait: Callable[[], None]
    ) -> Iterator[RecordLines | Position]:
        assert isinstance(start, TopicsPosition)
        assert until is None or isinstance(until, TopicsPosition)
        at = {topic: dict(partitions) for topic, partitions in start.offsets.items()}
        consumer, ended = self._assigned(at), set[tuple[str, int]]()
        looked = time.monotonic()
        while until is None or not _is_at(at, until, ended):
            messages = self._consumed(consumer, 0.2 if until is not None else 0.05)
            taken = self._taken(messages, at, until, ended)
            if taken.lines:
                yield taken
                at = {t: dict(ps) for t, ps in taken.position_from_count(len(taken.lines)).offsets.items()}
            for topic, partition, offset in self._ends:
                at.setdefault(topic, {})[partition] = max(at.get(topic, {}).get(partition, 0), offset)
            if not messages:
                yield TopicsPosition(_copy(at))
                if until is None or not _is_at(at, until, ended):
                    wait()
            if until is None and time.monotonic() - looked > _NEW_TOPICS_S:
                consumer, looked = self._assigned(at), time.monotonic()
        yield TopicsPosition(_copy(at))

    def read_sample(self) -> Iterator[RecordLines]:
        begin, end = self.find_begin_position(), self.find_end_position()
        few = {
            t: {p: min(offset + 100, end.offsets[t][p]) for p, offset in ps.items()} for t, ps in begin.offsets.items()
        }
        for piece in self.read(begin, TopicsPosition(few), lambda: None):
            if isinstance(piece, RecordLines):
                yield piece

    def _assigned(self, at: Offsets) -> Consumer:
        """Return the consumer, assigned to read from these offsets on; partitions that were not begun from their first one."""
        from confluent_kafka import TopicPartition

        for topic, partitions in self._watermarks().items():
            for partition, (low, _) in partitions.items():
                at.setdefault(topic, {}).setdefault(partition, low)
        consumer = self._consumer()
        assignment = [
            TopicPartition(t, p, offset)
            for t, ps in at.items()
            if self._config.is_topic_selected(t)
            for p, offset in ps.items()
        ]
        consumer.assign(assignment)
        return consumer

    def _consumed(self, consumer: Consumer, seconds: float) -> list[Message]:
        messages = consumer.consume(_AT_ONCE, timeout=seconds)
        size = sum(len(m.value() or b"") for m in messages)
        while messages and size < PIECE_BYTES and len(messages) < 4 * _AT_ONCE:
            more = consumer.consume(_AT_ONCE, timeout=0)
            if not more:
                break
            messages += more
            size += sum(len(m.value() or b"") for m in more)
        return messages

    def _taken(
        self, messages: list[Message], at: Offsets, until: TopicsPosition | None, ended: set[tuple[str, int]]
    ) -> TopicRecordLines:
        """Build a piece of the records up to the end; records after it are left out."""
        from confluent_kafka import KafkaError

        lines, times, places = [], [], []
        self._ends: list[tuple[str, int, int]] = []
        limits: Mapping[str, Mapping[int, int]] = {} if until is None else until.offsets
        for message in messages:
            topic, partition, offset = (
                str(message.topic()),
                _required_number(message.partition()),
                _required_number(message.offset()),
            )
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise self._unreadable(error, topic, partition, TopicsPosition(_copy(at)))
                ended.add((topic, partition))
                self._ends.append((topic, partition, offset))
                continue
            if until is not None and offset >= limits.get(topic, {}).get(partition, 0):
                ended.add((topic, partition))
                continue
            lines.append(self._line(message, topic))
            times.append(max(message.timestamp()[1], 0) * 1000)
            places.append((topic, partition, offset))
        if until is not None:
            self._ends = [(t, p, min(offset, limits.get(t, {}).get(p, 0))) for t, p, offset in self._ends]
        return TopicRecordLines(lines, times, places, _copy(at))

    def _line(self, message: Message, topic: str) -> bytes:
        """Format a record as a line of a file has it."""
        key, value = _bytes(message.key()), _bytes(message.value())
        if key is not None and self._config.events_key_format is KeyFormat.STRING:
            key = orjson.dumps(key.decode("utf-8", "replace"))
        line = b'{"topic":' + orjson.dumps(topic) + b',"key":' + (key or b"null") + b',"value":' + (value or b"null")
        if headers := message.headers():
            fields = headers.items() if isinstance(headers, dict) else headers
            line += b',"headers":' + orjson.dumps({name: _header(text) for name, text in fields})
        return line + b"}"

    # -- the brokers --------------------------------------------------------------------------------------------------

    def _watermarks(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Topic → partition → first offset, and that behind the last one."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._asking()
        try:
            topics = consumer.list_topics(timeout=_ANSWER_S).topics
            watermarks = {}
            for name, topic in topics.items():
                if self._config.is_topic_selected(name) and not name.startswith("__consumer_") and topic.error is None:
                    watermarks[name] = {
                        p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=_ANSWER_S)
                        for p in sorted(topic.partitions)
                    }
        except KafkaException as e:
            raise self._unreachable(e) from None
        finally:
            consumer.close()
        self._partitions = {name: {p: high for p, (_, high) in ps.items()} for name, ps in watermarks.items()}
        return watermarks

    def _consumer(self) -> Consumer:
        if self._open_consumer is None:
            self._open_consumer = self._new()
        return self._open_consumer

    def _asking(self) -> Consumer:
        """Open a separate consumer: sensors ask from any thread."""
        return self._new()

    def _new(self) -> Consumer:
        from confluent_kafka import Consumer, KafkaException

        properties = self._config.build_consumer_properties()
        check_client_security(properties, "consumer.", "The consumer of the topics")
        settings: dict[str, Any] = {
            "client.id": f"{self._config.topic_prefix}-events",
            "log_level": 0,  # errors come by the callback
            **properties,
            "bootstrap.servers": self._config.bootstrap_servers,
            "group.id": f"{self._config.topic_prefix}-events",  # the client wants one; nothing is committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "error_cb": self._on_error,
        }
        try:
            return Consumer(settings)
        except (KafkaException, TypeError, ValueError) as e:
            raise ConfigError(
                f"The Kafka consumer cannot be created from the properties consumer.*: {_text(e)}",
                safe="Nothing was read.",
                remedy="correct these properties; each is a property of librdkafka",
            ) from None

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error.str()

    def _unreachable(self, e: KafkaException) -> SourceUnavailable:
        return SourceUnavailable(
            f"The brokers do not respond: {self._trouble or _text(e)}",
            where=str(self._config.bootstrap_servers),
            safe=_SAFE,
            remedy="check that the brokers run, and that bootstrap.servers and consumer.* are correct",
        )

    def _unreadable(self, error: KafkaError, topic: str, partition: int, at: TopicsPosition) -> Exception:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return self._lost(f"The brokers no longer have the next offset of {topic} partition {partition}.", at)
        return SourceUnavailable(
            f"{topic} partition {partition} cannot be read: {error.str()}",
            where=str(self._config.bootstrap_servers),
            safe=_SAFE,
            remedy="check that the brokers run, and that the account may read the topic",
        )

    def _lost(self, problem: str, at: TopicsPosition) -> PositionLost:
        return PositionLost(
            problem,
            where=str(at),
            safe=_SAFE,
            remedy=f"`{format_cdc_command('gap', self._config.connector_name, repair='skip')}` shows the lost offsets and "
            "the command to continue after them; a new snapshot by the connector that writes the topic then "
            "completes its tables. Keep records longer than the longest delay between captures (retention.ms)",
        )


def _check_pattern(pattern: str | None) -> None:
    """Check that a topic's name is matched at once: a wizard of the API server matches, too, and matching holds up all of its threads.

    :raises ConfigError: it may take longer
    """
    try:
        count_match_steps(pattern or "", [_LONGEST_NAME])
    except RegexTooComplex:
        raise ConfigError(
            "Matching topics.regex with the names of topics may take for ever.",
            where=f"topics.regex={pattern}",
            remedy="write it without repeated groups, such as [a-z0-9-]* instead of ([a-z0-9]+-?)*, and with fewer .*; or list the topics in topics",
        ) from None


def _library() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as e:
        raise ConfigError(
            f"Kafka topics require the package confluent-kafka, which is not installed: {e}",
            safe="Nothing was read.",
            remedy="pip install 'airflow-provider-cdc[debezium]'",
        ) from None


def _is_at(at: Offsets, until: TopicsPosition, ended: set[tuple[str, int]]) -> bool:
    """Check whether all is read, up to the end of a partition at most: the rest of it may be no records."""
    return all(
        at.get(topic, {}).get(partition, 0) >= offset or (topic, partition) in ended
        for topic, partitions in until.offsets.items()
        for partition, offset in partitions.items()
    )


def _copy(offsets: Offsets) -> Offsets:
    return {topic: dict(partitions) for topic, partitions in offsets.items()}


def _required_number(number: int | None) -> int:
    assert number is not None
    return number


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _header(data: str | bytes | None) -> Any:
    """Parse a header's value: JSON if it is some, otherwise a text."""
    if data is None:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data if isinstance(data, str) else data.decode("utf-8", "replace")


def _text(e: BaseException) -> str:
    first = e.args[0] if e.args else e
    return str(first.str()) if hasattr(first, "str") else str(first)
