"""Prerequisites, each with the command that mends it; and errors that show no secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import AccessDenied, CdcError, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mongodb.checks import _without_documents
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Deployment
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from airflow_provider_cdc.sources.mongodb.product_checks import product_of
from airflow_provider_cdc.sources.mongodb.source import MongoDbSource
from dev.servers.mongodb import MongoDb
from tests.support.servers.tls import authority, sign_certificate
from tests.support.signals import snapshot
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector


@pytest.fixture(scope="module")
def secured_server() -> Iterator[MongoDb]:
    """A server with an administrator, and accounts with some rights."""
    with MongoDb({"auth": True}) as server:
        with server.connect() as client:
            client.admin.command({"createUser": "root", "pwd": "secret", "roles": ["root"]})
        with server.connect(username="root", password="secret") as root:
            root.shop.create_collection("orders")
            for name, roles in (
                ("nobody", []), ("reader", [{"role": "read", "db": "shop"}]), ("any", [{"role": "readAnyDatabase", "db": "admin"}]),
                ("writer", [{"role": "readAnyDatabase", "db": "admin"}, {"role": "readWrite", "db": "cdc"}]),
            ):  # fmt: skip
                root.admin.command({"createUser": name, "pwd": "sesame&${x}", "roles": roles})
            root.users.command(
                {"createUser": "elsewhere", "pwd": "sesame&${x}", "roles": [{"role": "readAnyDatabase", "db": "admin"}]}
            )
            root.cdc.create_collection("signals")
        yield server


SOON = {"mongodb.server.selection.timeout.ms": 2000}
"""For what never comes; a busy machine may need longer for what does."""


def source(server: MongoDb, user: str, password: str = "sesame&${x}", **properties: Any) -> MongoDbSource:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return MongoDbSource(
        MongoDbConfig.parse(
            {
                "topic.prefix": "t", "mongodb.connection.string": server.url(), "mongodb.user": user, "mongodb.password": password,
                **named,
            }
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("user", "properties", "fix"),
    [
        ("nobody", {}, 'grantRolesToUser("nobody", [{role: "readAnyDatabase", db: "admin"}])'),
        ("reader", {}, 'grantRolesToUser("reader", [{role: "readAnyDatabase", db: "admin"}])'),
        ("reader", {"capture_scope": "database", "capture_target": "cdc"}, '[{role: "read", db: "cdc"}]'),
        ("reader", {"capture_scope": "database", "capture_target": "shop"}, None),
        ("reader", {"capture_scope": "collection", "capture_target": "shop.orders"}, None),
        ("any", {}, None),
        ("any", {"signal_data_collection": "cdc.signals"}, 'grantRolesToUser("any", [{role: "readWrite", db: "cdc"}])'),
        ("any", {"signal_data_collection": "cdc.signals", "read_only": True}, None),
        ("any", {"signal_data_collection": "cdc.others", "read_only": True}, 'createCollection("others")'),
        ("writer", {"signal_data_collection": "cdc.signals"}, None),
        ("any", {"capture_mode": "change_streams"}, None),
        ("any", {"capture_mode": "change_streams_update_full"}, None),
        (
            "any",
            {"capture_mode": "change_streams_update_full_with_pre_image", "collection_include_list": "shop.orders"},
            'db.getSiblingDB("shop").runCommand({collMod: "orders", changeStreamPreAndPostImages: {enabled: true}})',
        ),
    ],
)  # fmt: skip
def test_a_missing_right_is_reported_with_the_command_that_gives_it(
    secured_server: MongoDb, user: str, properties: dict[str, Any], fix: str | None
) -> None:
    found: list[Finding] = source(secured_server, user, **properties).check_prerequisites()
    found = [finding for finding in found if "oplog" not in finding.problem]
    assert len(found) == (fix is not None), found
    assert all(fix in finding.fix for finding in found if fix is not None)


def test_the_right_that_shows_how_far_the_oplog_goes_back_is_reported(secured_server: MongoDb) -> None:
    with secured_server.connect(username="root", password="secret") as root:
        root.admin.command(
            {"createUser": "more", "pwd": "sesame&${x}", "roles": [{"role": "readAnyDatabase", "db": "admin"}]}
        )
        with source(secured_server, "more") as requested:
            (finding,) = requested.check_prerequisites()
            assert not finding.fatal
            assert finding.fix == 'db.getSiblingDB("admin").grantRolesToUser("more", [{role: "read", db: "local"}])'
            assert requested.log_window(requested.current_position()) == LogWindow()
            root.admin.command({"grantRolesToUser": "more", "roles": [{"role": "read", "db": "local"}]})
            assert requested.check_prerequisites() == []
            root.shop.orders.insert_one({})
            time.sleep(1.1)  # an oplog is measured in seconds
            root.shop.orders.insert_one({})
            assert requested.log_window(requested.current_position()).gone_at_s is not None


@pytest.mark.parametrize(
    ("user", "properties"),
    [
        ("any", {"database_include_list": "shop"}),
        ("elsewhere", {"database_include_list": "shop", "mongodb_authsource": "users"}),
        ("reader", {"capture_scope": "database", "capture_target": "shop"}),
        ("writer", {"database_include_list": "shop", "signal_data_collection": "cdc.signals"}),
    ],
)
def test_the_documented_accounts_capture_and_no_other_right_is_needed(
    secured_server: MongoDb, tmp_path: Path, user: str, properties: dict[str, Any]
) -> None:
    """Neither the oplog nor the configuration of shards is read, and the names of databases that may be read are known without listDatabases."""
    connector = mongodb_connector(secured_server.url(), tmp_path, **properties)
    connector.secrets |= {"mongodb.user": user, "mongodb.password": "sesame&${x}"}
    with secured_server.connect(username="root", password="secret") as root:
        root.shop.orders.insert_one({})
        there = root.shop.orders.count_documents({})
        assert connector.capture().topics == {"test.shop.orders": there}
        root.shop.orders.insert_one({})
    assert connector.capture().topics == {"test.shop.orders": 1}
    snapshot(connector, "shop.orders")
    assert connector.capture().topics == {"test.shop.orders": there + 1}
    connector.secrets["mongodb.user"] = "nobody"
    with pytest.raises(CdcError):
        connector.capture()
    connector.secrets["mongodb.user"] = ""
    with pytest.raises(CdcError):
        connector.capture()


@pytest.mark.parametrize(
    ("version", "mode", "told"),
    [((5, 0, 3), "change_streams", True), ((5, 0, 3), "change_streams_update_full", False), ((6, 0), "change_streams", False)],
)  # fmt: skip
def test_paths_of_updates_that_a_server_does_not_explain_are_reported(
    version: tuple[int, ...], mode: str, told: bool
) -> None:
    config = MongoDbConfig.parse(
        {"topic.prefix": "t", "mongodb.connection.string": "mongodb://a/?replicaSet=rs0", "capture.mode": mode}
    )
    found = list(_without_documents(config, Deployment("rs0", version)))
    assert [one.fix.startswith("set capture.mode=change_streams_update_full") for one in found] == [True] * told


def test_errors_name_the_account_and_never_its_password(secured_server: MongoDb) -> None:
    with pytest.raises(AccessDenied) as wrong:
        source(secured_server, "any", "another sesame").check_prerequisites()
    with pytest.raises(CdcError) as refused:
        source(secured_server, "nobody").oldest_position()
    for caught in (wrong, refused):
        assert "sesame" not in f"{caught.value}{caught.value.__cause__}"
        assert caught.value.remedy
    assert "any" in str(wrong.value)


def test_no_one_who_answers_is_an_error_that_says_where(tmp_path: Path) -> None:
    config = {
        "topic.prefix": "t",
        "mongodb.connection.string": "mongodb://127.0.0.1:1/",
        "mongodb.server.selection.timeout.ms": 200,
    }
    with pytest.raises(SourceUnavailable, match="No available member") as caught:
        MongoDbSource(MongoDbConfig.parse(config)).current_position()
    assert caught.value.remedy


def test_a_standalone_server_is_refused_with_the_steps_that_convert_it() -> None:
    with MongoDb({"replica_set": None}) as server:
        config = {"topic.prefix": "t", "mongodb.connection.string": f"mongodb://{server.host}:{server.port}/"}
        alone = MongoDbSource(MongoDbConfig.parse(config))
        (finding,) = alone.check_prerequisites()
        assert finding.fatal
        assert "rs.initiate()" in finding.fix
        with pytest.raises(PrerequisiteError, match="standalone"):
            alone.current_position()


def test_tls_and_x509(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    own, made = sign_certificate(tmp_path, ca, "server", "127.0.0.1"), sign_certificate(tmp_path, ca, "reader")
    both = tmp_path / "both.pem"
    both.write_bytes(made.file.read_bytes() + made.key_file.read_bytes())
    tls = {"certificate": str(own.file), "key": str(own.key_file), "ca": str(ca.file)}
    with MongoDb({"auth": True, "tls": tls}) as server:
        options = {"tls": True, "tlsCAFile": str(ca.file), "tlsCertificateKeyFile": str(both)}
        with server.connect(**options) as client:
            client["$external"].command(
                {"createUser": "CN=reader", "roles": [{"role": "readAnyDatabase", "db": "admin"}]}
            )
        given = {
            "topic.prefix": "t", "mongodb.connection.string": server.url(authMechanism="MONGODB-X509"), "mongodb.ssl.enabled": True,
            "mongodb.ssl.ca": str(ca.file), "mongodb.ssl.certificate": str(both),
        }  # fmt: skip
        assert [f for f in MongoDbSource(MongoDbConfig.parse(given)).check_prerequisites() if f.fatal] == []
        with pytest.raises(PrerequisiteError, match="secure connection"):
            MongoDbSource(MongoDbConfig.parse(given | {"mongodb.ssl.ca": None} | SOON)).current_position()


def test_a_connection_that_is_not_encrypted_names_tls_first_where_the_server_closes_it(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    own = sign_certificate(tmp_path, ca, "server", "127.0.0.1")
    with MongoDb({"tls": {"certificate": str(own.file), "key": str(own.key_file), "ca": str(ca.file)}}) as server:
        given = {"topic.prefix": "t", "mongodb.connection.string": server.url()}
        with pytest.raises(SourceUnavailable, match="unencrypted connection") as caught:
            MongoDbSource(MongoDbConfig.parse(given | SOON)).current_position()
        assert str(caught.value.remedy).startswith("if the server requires TLS, set mongodb.ssl.enabled=true")
        private = given | {"mongodb.connection.string": server.url(tls="true"), "mongodb.ssl.ca": str(ca.file)}
        assert MongoDbSource(MongoDbConfig.parse(private)).current_position().time.seconds > 0


@pytest.mark.parametrize(
    ("product", "name"),
    [("amazon", "an unknown product"), ("azure", "DocumentDB"), ("cosmos", "Cosmos DB"), ("ferretdb", "FerretDB")],
)
def test_products_that_are_no_mongodb_are_refused(product: str, name: str, tmp_path: Path) -> None:
    """Amazon's does not say what it is where its host has another name than Amazon gave it: its change streams show it."""
    with MongoDb({"product": product, "version": "5.0.31"}) as server:
        address = f"mongodb://{server.host}:{server.port}/?directConnection=true"
        mongo_db_source = MongoDbSource(
            MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": address})
        )
        fatal = [finding for finding in mongo_db_source.check_prerequisites() if finding.fatal]
        assert [name in finding.problem and "not MongoDB" in finding.problem for finding in fatal] == [True]
        with pytest.raises(PrerequisiteError, match="not MongoDB"):
            mongo_db_source.verify_position(MongoPosition(ClusterTime(int(time.time()), 1)))
        with pytest.raises(PrerequisiteError, match="not MongoDB"):
            mongodb_connector(address, tmp_path).capture()


@pytest.mark.parametrize("host", ["a.docdb.amazonaws.com", "a.docdb-elastic.amazonaws.com", "a.mongo.cosmos.azure.com"])
def test_products_are_known_by_the_names_of_their_hosts(host: str) -> None:
    assert product_of({}, {}, [host.upper()])
    assert product_of({}, {}, ["a.example.org", "docdb.amazonaws.com.example.org"]) is None


def test_a_certificate_has_to_name_the_host_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    other = sign_certificate(tmp_path, ca, "other", "other.example.org")
    tls = {"certificate": str(other.file), "key": str(other.key_file), "ca": str(ca.file)}
    with MongoDb({"tls": tls}) as server:
        given = {
            "topic.prefix": "t", "mongodb.connection.string": server.url(), "mongodb.ssl.enabled": True, "mongodb.ssl.ca": str(ca.file),
        }  # fmt: skip
        with pytest.raises(PrerequisiteError, match="secure connection"):
            MongoDbSource(MongoDbConfig.parse(given | SOON)).current_position()
        allowed = given | {"mongodb.ssl.invalid.hostname.allowed": True}
        assert MongoDbSource(MongoDbConfig.parse(allowed)).current_position().time.seconds > 0
        with pytest.raises(PrerequisiteError, match="secure connection"):
            MongoDbSource(MongoDbConfig.parse(allowed | {"mongodb.ssl.ca": None} | SOON)).current_position()


def test_how_far_the_log_reaches_is_reported_as_far_as_the_account_may_see_it(secured_server: MongoDb) -> None:
    with source(secured_server, "root", "secret") as all_, source(secured_server, "any") as few:
        at = all_.current_position()
        time.sleep(1.1)  # an oplog is measured in seconds
        with secured_server.connect(username="root", password="secret") as root:
            root.shop.orders.insert_many([{"_id": n, "text": "x" * 1000} for n in range(200)])
            stats = root.local.command("collStats", "oplog.rs")
            first, last = (root.local["oplog.rs"].find_one({}, sort=[("$natural", n)])["ts"].time for n in (1, -1))
        found = all_.log_window(all_.current_position())
        assert found.behind_bytes == 0
        assert found.gone_at_s is not None
        held = max(last - first, 1)
        left = found.gone_at_s - last
        assert left >= held, "it is not full yet: it goes on for longer than it is old"
        assert left == pytest.approx(held * stats["maxSize"] / stats["size"], rel=0.5)
        early = all_.log_window(MongoPosition(ClusterTime(first, 1)))
        assert early.behind_bytes == pytest.approx(stats["size"], rel=0.2)
        assert early.gone_at_s is not None
        assert early.gone_at_s < found.gone_at_s
        assert few.log_window(at) == LogWindow()
        kept = all_.find_log_retention()
        assert kept is not None
        assert (kept.seconds is None) == ("has everything since" in kept.setting)
        assert few.find_log_retention() is None
