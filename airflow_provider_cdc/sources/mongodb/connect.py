"""Clients of a deployment, and the kind of the deployment.

One client of pymongo's watches the members and asks the primary, or a router. Everything is read with read concern *majority*: a change that no majority
has may be rolled back, and is never captured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pymongo.errors as driver
from bson import CodecOptions
from bson.codec_options import DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.errors import translate_error, without_secrets
from airflow_provider_cdc.sources.mongodb.position import ClusterTime
from airflow_provider_cdc.sources.mongodb.product_checks import no_mongodb, product_of

Client = MongoClient[Any]

MAJORITY: Final = ReadConcern("majority")
RAW: Final[CodecOptions[RawBSONDocument]] = CodecOptions(document_class=RawBSONDocument)
"""Replies as bytes."""
ORDERED: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)
"""Replies as dictionaries, with dates of any year."""


_OF_THE_SET: Final = frozenset(
    {
        "replicaset", "directconnection", "loadbalanced", "srvmaxhosts", "srvservicename", "readpreference", "readpreferencetags",
        "maxstalenessseconds",
    }
)  # fmt: skip
"""Options of a connection string that are about finding members."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The deployment that answers.

    :param set_name: name of the replica set; ``None``: a router
    :param version: of the server
    """

    set_name: str | None
    version: tuple[int, ...]

    @property
    def is_sharded(self) -> bool:
        """Check whether a router answers for several shards."""
        return self.set_name is None

    @property
    def can_record_images(self) -> bool:
        """Check whether collections can record documents before and after a change."""
        return self.version >= (6, 0)

    @property
    def has_expanded_events(self) -> bool:
        """Check whether change streams have events of all structures, and paths that are not ambiguous."""
        return self.version >= (6, 0)

    @property
    def can_split_events(self) -> bool:
        """Check whether events of more than 16 MB can be had in parts."""
        return self.version >= (7, 0) or (self.version[:2] == (6, 0) and self.version >= (6, 0, 9))

    @property
    def can_read_snapshots(self) -> bool:
        """Check whether collections can be read as they were at one moment."""
        return self.version >= (5, 0)


def open_client(config: MongoDbConfig, **options: Any) -> Client:
    """Open a client; it connects when it is asked something.

    :raises ConfigError: the connection string cannot be used
    """
    with translate_driver_errors(config):
        return MongoClient(**(_options(config) | options))


def open_member_client(config: MongoDbConfig, address: tuple[str, int | None]) -> Client:
    """Open a client of one member or router: a cursor is asked where it was opened, whatever becomes of that member."""
    with translate_driver_errors(config):
        named = {str(name).lower(): value for name, value in _options(config).items() if name != "host"}
        uri_options = {str(name).lower(): value for name, value in parse_uri(config.connection_uri)["options"].items()}
        options = {name: value for name, value in uri_options.items() if name not in _OF_THE_SET} | named
        if uri_options.get("loadbalanced"):  # one connection leads to one router, and others maybe to others
            return MongoClient(address[0], address[1], loadBalanced=True, **(options | {"maxpoolsize": 1}))
        return MongoClient(address[0], address[1], directConnection=True, **options)


def deployment_of(client: Client) -> Deployment:
    """Inspect the deployment that a client is connected to.

    :raises PrerequisiteError: a standalone server or an arbiter, which have no change streams, or no MongoDB
    :raises SourceUnavailable: the only member that is asked answers no reads now
    """
    hello, build = client.admin.command("hello"), client.admin.command("buildInfo")
    version = tuple(int(part) for part in build["versionArray"][:3])
    hosts = [host for host, _ in client.nodes]
    if (product := product_of(hello, build, hosts)) is not None:
        raise no_mongodb(product, ", ".join(sorted(hosts)) or None)
    if hello.get("msg") == "isdbgrid":
        return Deployment(None, version)
    if "setName" not in hello:
        host = client.address
        raise PrerequisiteError(
            "The server is a standalone server: it has no oplog, and therefore no change streams.",
            where=f"{host[0]}:{host[1]}" if host else None,
            safe="Nothing was read; the offset is untouched.",
            remedy="convert it to a replica set with one member: set replication.replSetName: rs0 in mongod.conf, "
            "restart mongod, run rs.initiate() in mongosh, and add replicaSet=rs0 to the connection string",
        )
    _check_member(hello)
    return Deployment(str(hello["setName"]), version)


def _check_member(hello: Mapping[str, Any]) -> None:
    """Make sure that a member has data that it shows; a connection string with ``directConnection=true`` may name one that does not."""
    if hello.get("arbiterOnly"):
        raise PrerequisiteError(
            "The member in the connection string is an arbiter, which has no data and no oplog.",
            where=hello.get("me"),
            safe="Nothing was read; the offset is untouched.",
            remedy="name the members that store data, and replicaSet=…, without directConnection=true",
        )
    if not (hello.get("isWritablePrimary") or hello.get("secondary")):
        raise SourceUnavailable(
            "The member in the connection string is neither primary nor secondary: it is starting, "
            "recovering or rolling back, or was removed from the set.",
            where=hello.get("me"),
            safe="Nothing was read; the offset is untouched.",
            remedy="wait until rs.status() reports the member as PRIMARY or SECONDARY, or name all members, and "
            "replicaSet=…, without directConnection=true",
        )


def now_of(client: Client) -> ClusterTime:
    """Read the cluster's time.

    Everything that a majority has is at this moment at the latest, and can be read as it was then.

    Where a majority lags behind its primary, as with an arbiter for a secondary that is down, change streams and snapshots do, too.
    """
    hello = client.admin.command("hello")
    written = hello.get("lastWrite", {}).get("majorityOpTime", {}).get("ts")
    if written is None:  # a router
        with client.start_session() as session:
            client.admin.command("ping", session=session)
            written = session.operation_time or hello["$clusterTime"]["clusterTime"]
    return ClusterTime(written.time, written.inc)


@contextlib.contextmanager
def translate_driver_errors(config: MongoDbConfig, where: str = "") -> Iterator[None]:
    """Translate errors of the driver; they never contain a password.

    :param where: collection, position or command, for the error's text; by default the addresses of the deployment
    """
    try:
        yield
    except driver.PyMongoError as e:
        error = translate_error(e, config, where)
        raise error from (e if without_secrets(str(e), config) == str(e) else None)


def _options(config: MongoDbConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "host": config.connection_uri,
        "appname": "airflow_provider_cdc",
        "connectTimeoutMS": config.mongodb_connect_timeout_ms,
        "serverSelectionTimeoutMS": config.mongodb_server_selection_timeout_ms,
        "heartbeatFrequencyMS": config.mongodb_heartbeat_frequency_ms,
        "readConcernLevel": "majority",
        "datetime_conversion": DatetimeConversion.DATETIME_MS,
        "tz_aware": False,
    }
    if config.mongodb_socket_timeout_ms:
        options["socketTimeoutMS"] = config.mongodb_socket_timeout_ms
    if config.mongodb_user:
        options |= {"username": config.mongodb_user}
        if password := config.mongodb_password.get_secret_value():
            options |= {"password": password, "authSource": config.mongodb_authsource}
    if config.has_tls:
        options["tls"] = True
        if config.mongodb_ssl_invalid_hostname_allowed:
            options["tlsAllowInvalidHostnames"] = True
        if config.mongodb_ssl_ca:
            options["tlsCAFile"] = config.mongodb_ssl_ca
        if config.mongodb_ssl_certificate:
            options["tlsCertificateKeyFile"] = config.mongodb_ssl_certificate
            if password := config.mongodb_ssl_certificate_password.get_secret_value():
                options["tlsCertificateKeyFilePassword"] = password
    return options
