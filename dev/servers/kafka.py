"""An Apache Kafka broker, for signals that come from a topic."""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from dev.bootstrap import databases
from dev.ports import free_port
from dev.servers import template
from dev.servers.base import Server
from dev.servers.process import run_once

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, PartitionMetadata

CLUSTER = "Y2RjLWRldi1zZXJ2ZXItMA"
"""Any 16 bytes in URL-safe base64: copies of one data folder must agree on it."""


class Kafka(Server):
    """A broker that is its own controller (KRaft), without passwords."""

    kind = "kafka"
    user = ""
    password = ""
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "broker.session.timeout.ms": 2000,  # how long a broker that was killed counts as alive
        "broker.heartbeat.interval.ms": 500,
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        folder: Path | str | None = None,
        port: int | None = None,
        protocols: Sequence[str] = (),
    ) -> None:
        """:param protocols: further listeners, such as ``SSL``, besides the one for plain text; ``options`` say what they need"""
        super().__init__(options, folder=folder, port=port)
        self._controller_port: int | None = None
        self._ports = {protocol: free_port(self.host) for protocol in protocols}
        self._installation: databases.Installation | None = None

    @property
    def installation(self) -> databases.Installation:
        """The programs, fetched when they are not there yet."""
        if self._installation is None:
            self._installation = databases.ensure("kafka")
        return self._installation

    @property
    def version(self) -> str:
        """The version of the broker."""
        return self.installation.version

    @property
    def address(self) -> str:
        """The value of ``bootstrap.servers`` for clients."""
        return f"{self.host}:{self.port}"

    def secure(self, protocol: str) -> str:
        """Return the value of ``bootstrap.servers`` for clients of a further listener."""
        return f"{self.host}:{self._ports[protocol]}"

    # use

    def connect(self, **overrides: Any) -> "AdminClient":
        """An administrator's client."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0, **overrides})

    @contextlib.contextmanager
    def topic(self, prefix: str = "topic", *, partitions: int = 1) -> Iterator[str]:
        """The name of a new topic, deleted at the end."""
        name = f"{prefix}-{uuid4().hex[:8]}"
        self.create_topic(name, partitions=partitions)
        try:
            yield name
        finally:
            if self.running:
                self.delete_topic(name)

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        """Make a topic, and wait until it can be written to."""
        from confluent_kafka.admin import NewTopic

        client = self.connect()  # what waits for its answer ends with it
        for made in client.create_topics([NewTopic(name, partitions, 1)], operation_timeout=30).values():
            made.result(30)
        deadline = time.monotonic() + 30
        while not any(p.leader >= 0 for p in self._partitions(client, name)):  # the broker hears of it a moment later
            if time.monotonic() > deadline:
                raise TimeoutError(f"the topic {name} has no leader")
            time.sleep(0.02)

    @staticmethod
    def _partitions(client: "AdminClient", topic: str) -> "list[PartitionMetadata]":
        found = client.list_topics(timeout=30).topics.get(topic)
        return list(found.partitions.values()) if found else []

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all that is in it."""
        client = self.connect()
        for deleted in client.delete_topics([name], operation_timeout=30).values():
            deleted.result(30)

    def send(self, topic: str, *values: str | bytes, key: str | None = None, partition: int = 0) -> None:
        """Write messages, in this order; returns when the broker has them."""
        producer = self._producer()
        for value in values:
            producer.produce(topic, value, key, partition=partition)
        if producer.flush(30):
            raise TimeoutError(f"the broker at {self.address} did not take messages for {topic}")

    def _producer(self) -> "Producer":
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})

    # starting

    def _prepare(self) -> None:
        (self.folder / "server.properties").write_text(self._properties(self.data))
        if not self.data.exists():
            template.copy(f"kafka-{self.version}", [self.version, CLUSTER], self._make_data, self.data)

    def _make_data(self, work: Path) -> Path:
        settings = work / "server.properties"
        settings.write_text(self._properties(work / "data"))
        format_ = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
        run_once("formatting", [*self.installation.command, *format_], self.installation.environment, cwd=work)
        return work / "data"

    def _properties(self, data: Path) -> str:
        here = f"CONTROLLER://{self.host}:{self._controller()}"
        more = [f"{protocol}://{self.secure(protocol)}" for protocol in self._ports]
        listeners = [f"PLAINTEXT://{self.address}", *more]
        places = {
            "listeners": ",".join([*listeners, here]),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ("PLAINTEXT", *self._ports))]
            ),
            "controller.quorum.voters": f"{self.DEFAULTS['node.id']}@{here.partition('//')[2]}",
            "log.dirs": data,
        }
        settings = {**places, **self.options}
        return "".join(f"{name}={value}\n" for name, value in settings.items() if value is not None)

    def _controller(self) -> int:
        if self._controller_port is None:
            self._controller_port = free_port(self.host)
        return self._controller_port

    def _command(self) -> tuple[list[str], dict[str, str]]:
        (self.folder / "server.properties").write_text(self._properties(self.data))  # the port may be another one
        program = [*self.installation.command, "kafka.Kafka", str(self.folder / "server.properties")]
        return program, self.installation.environment

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            with socket.create_connection((self.host, self.port), timeout=1):
                pass
            return bool(self.connect().list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            return False
