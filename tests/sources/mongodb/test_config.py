"""Properties of the MongoDB source: connection strings without secrets, scopes, fields, filters, and what is pushed to the server."""

import re
from itertools import product
from typing import Any

import pymongo.uri_parser
import pytest

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Deployment, _options
from airflow_provider_cdc.sources.mongodb.log.stream_pipeline import (
    build_stages,
    change_stream,
    resolve_aggregate_scope,
)

EIGHT = Deployment("rs0", (8, 0, 10))


def config(**properties: Any) -> MongoDbConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return MongoDbConfig.parse(
        {"topic.prefix": "t", "mongodb.connection.string": "mongodb://a/?replicaSet=rs0", **named}
    )


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("mongodb://a:1,b:2/?replicaSet=rs0", "mongodb://a:1,b:2/?replicaSet=rs0"),
        ("db.example.org", "mongodb://db.example.org:27017/"),
        ("rs0/a:1,b", "mongodb://a:1,b:27017/?replicaSet=rs0"),
        ("a,b:1", "mongodb://a:27017,b:1/"),
    ],
)
def test_a_connection_string_or_hosts(given: str, uri: str) -> None:
    assert config(**{"mongodb.connection.string": given}).connection_uri == uri
    assert MongoDbConfig.parse({"topic.prefix": "t", "mongodb.hosts": given}).connection_uri == uri


def test_the_sample_of_the_guide_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    sample = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector", "tasks.max": 1, "mongodb.hosts": "rs0/192.168.99.100:27017",
        "mongodb.user": "debezium", "mongodb.password": "dbz", "topic.prefix": "inventory-connector-mongodb",
        "collection.include.list": "inventory[.]*",
    }  # fmt: skip
    made = MongoDbConfig.parse(sample)
    assert (made.connection_uri, made.mongodb_user) == ("mongodb://192.168.99.100:27017/?replicaSet=rs0", "debezium")
    assert made.topic_prefix == "inventory-connector-mongodb"
    assert len([r for r in caplog.records if "is accepted and has no effect" in r.message]) == 2
    assert "mongodb.hosts is a deprecated property" in caplog.text


def test_defaults_and_what_passes_through(caplog: pytest.LogCaptureFixture) -> None:
    plain = config()
    assert (plain.poll_interval_ms, plain.cursor_max_await_time_ms, plain.snapshot_fetch_size) == (500, 0, 10_240)
    made = config(
        signal_enabled_channels="source,kafka", signal_kafka_bootstrap_servers="k:9092", signal_kafka_topic="asks",
        notification_enabled_channels="sink", notification_sink_topic_name="told",
        **{"signal.consumer.fetch.min.bytes": "7", "schema.history.internal.kafka.topic": "none"},
    )  # fmt: skip
    assert {name: value.get_secret_value() for name, value in made.signal_consumer.items()} == {"fetch.min.bytes": "7"}
    assert (made.signal_kafka_topic, made.notification_sink_topic_name) == ("asks", "told")
    assert "has no schema history" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        "mongodb://cdc:sesame@a/?replicaSet=rs0", "mongodb+srv://cdc:sesame@a", "cdc:sesame@a",
        "mongodb://a/?tlsCertificateKeyFilePassword=sesame",
    ],
)  # fmt: skip
def test_secrets_are_refused_and_not_shown(given: str) -> None:
    with pytest.raises(ConfigError, match="login and password of the Airflow connection") as caught:
        config(**{"mongodb.connection.string": given})
    assert "sesame" not in str(caught.value)


def test_the_fields_of_a_connection() -> None:
    found = MongoDbConfig.from_connection(
        host="mongodb://a", login="cdc", password="sesame", schema="users", extra={"mongodb.ssl.enabled": "true"}
    )
    made = MongoDbConfig.parse({"topic.prefix": "t", **found})
    assert (made.mongodb_user, made.mongodb_authsource, made.mongodb_ssl_enabled) == ("cdc", "users", True)
    assert "sesame" not in str(made.to_public_properties())


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"capture_scope": "database"}, "capture.target"),
        ({"capture_scope": "database", "capture_target": "shop", "signal_data_collection": "cdc.signals"}, "signal.data.collection"),
        ({"capture_scope": "collection", "capture_target": "shop"}, "capture.target"),
        ({"capture_target": "shop"}, "capture.target"),
        ({"cursor_oversize_handling_mode": "skip"}, "cursor.oversize.skip.threshold"),
        ({"capture_mode": "change_streams", "capture_mode_full_update_type": "post_image"}, "capture.mode.full.update.type"),
        ({"field_exclude_list": "shop.orders"}, "field.exclude.list"),
        ({"field_exclude_list": "shop.orders._id"}, "field.exclude.list"),
        ({"field_renames": "shop.orders.a"}, "field.renames"),
        ({"document_variant_list": "a.b", "capture_mode": "change_streams_with_pre_image"}, "document.variant.list"),
        ({"cursor_pipeline": "{}"}, "cursor.pipeline"),
        ({"cursor_pipeline": "[1"}, "cursor.pipeline"),
        ({"mongodb_members_auto_discover": "false"}, "mongodb.members.auto.discover"),
        ({"mongodb_ssl_keystore": "x"}, "mongodb.ssl.keystore"),
        ({"collection_include_list": "a.b", "collection_exclude_list": "a.b"}, "collection.include.list"),
        ({"database_include_list": "a", "database_exclude_list": "b"}, "database.include.list"),
        ({"topic_prefix": "a b"}, "topic.prefix"),
        ({"topic_prefix": "grün"}, "topic.prefix"),
        ({"snapshot_collection_filter_overrides": "shop.orders"}, "snapshot.collection.filter.overrides"),
        ({"snapshot_collection_filter_overrides": "a.b", "snapshot_collection_filter_overrides_a_b": "[]"}, "is not a filter"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_by_its_name(properties: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        config(**properties)


def test_documents_are_variants_by_patterns_like_those_of_collections() -> None:
    shop = config(document_variant_list=r"shop\.(orders|LINES),other\..*")
    names = ("shop.orders", "Shop.lines", "shop.orders_2", "other.x.y", "another.x")
    found = [shop.as_variant(TableId(namespace=name.partition(".")[0], name=name.partition(".")[2])) for name in names]
    assert found == [True, True, False, True, False]
    assert not config().as_variant(TableId(namespace="shop", name="orders"))


def test_documents_that_are_to_be_columns_too_are_refused() -> None:
    both = config(document_variant_list=r"shop\..*", document_columns_list=".*")
    for asked in (both.as_variant, both.as_columns):
        with pytest.raises(ConfigError, match=r"shop\.orders .*document\.variant\.list and in document\.columns\.list"):
            asked(TableId(namespace="shop", name="orders"))
    assert both.as_columns(TableId(namespace="other", name="orders"))


def test_scopes() -> None:
    assert resolve_aggregate_scope(config()) == ("admin", 1)
    assert resolve_aggregate_scope(config(capture_scope="database", capture_target="shop")) == ("shop", 1)
    assert resolve_aggregate_scope(config(capture_scope="collection", capture_target="shop.a.b")) == ("shop", "a.b")


@pytest.mark.parametrize(
    ("mode", "kind", "options"),
    [
        ("change_streams", "lookup", {}),
        ("change_streams_update_full", "lookup", {"fullDocument": "updateLookup"}),
        ("change_streams_update_full", "post_image", {"fullDocument": "whenAvailable"}),
        ("change_streams_with_pre_image", "lookup", {"fullDocumentBeforeChange": "whenAvailable"}),
        (
            "change_streams_update_full_with_pre_image", "lookup",
            {"fullDocument": "updateLookup", "fullDocumentBeforeChange": "whenAvailable"},
        ),
    ],
)  # fmt: skip
def test_capture_modes(mode: str, kind: str, options: dict[str, str]) -> None:
    given = change_stream(config(capture_mode=mode, capture_mode_full_update_type=kind), EIGHT)
    assert {n: v for n, v in given.items() if n.startswith("fullDocument")} == options


def test_own_stages_stand_where_the_order_says_and_the_split_is_last() -> None:
    own = {"$match": {"fullDocument.n": {"$gt": {"$numberLong": "3"}}}}
    for order, place in ((None, 2), ("internal_first", 2), ("user_first", 1), ("user_only", 1)):
        made = build_stages(
            config(
                cursor_pipeline=[own],
                **({} if order is None else {"cursor_pipeline_order": order}),
                cursor_oversize_handling_mode="split",
                collection_include_list="a.b",
            ),
            EIGHT,
            {},
        )
        assert [name for stage in made for name in stage][-1] == "$changeStreamSplitLargeEvent"
        assert made[place] == {"$match": {"fullDocument.n": {"$gt": 3}}}
        assert len(made) == (3 if order == "user_only" else 4)


NAMES = [
    TableId(namespace=db, name=coll)
    for db, coll in product(("shop", "Shop2", "a-b", "x"), ("orders", "orders.old", "o", "a.b", "Orders_1"))
]


@pytest.mark.parametrize(
    "pattern",
    [
        "shop.orders", r"shop\.orders", r"shop\..*", "shop[.]o.*", r".*\.orders", "shop.*", ".*orders", r"(shop|x)\.orders", r"shop2\.ORDERS_1",
        r"a-b\.o", r"shop\.orders\.old", r"shop\.?orders", r"sho+p\.orders?", r"x\.a\.b", "[^s].*", r"\w+\.orders", r".\.o",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["collection.include.list", "database.include.list"])
def test_the_server_leaves_out_nothing_that_is_captured(pattern: str, name: str) -> None:
    """Evaluate the pushed-down conditions here as the server would."""
    made = config(**{name: pattern})
    filters = Filters(made)
    pushed = build_stages(made, EIGHT, {})[1:]
    for table in NAMES:
        if filters.is_table_captured(table) and pushed:
            (alternatives,) = [stage["$match"]["$or"][1:] for stage in pushed]
            assert any(_fulfils_condition(table, one) for one in alternatives), (pattern, table)


@pytest.mark.parametrize("pattern", [r"shop\.orders", "shop.orders", r"shop\..*", r"shop\.o.*", r"sho+p\.orders?"])
def test_the_server_leaves_out_what_is_excluded_and_nothing_else(pattern: str) -> None:
    """A collection that is left out may lack images that others need."""
    lists: list[dict[str, Any]] = [
        {"collection.exclude.list": pattern}, {"collection.exclude.list": f"(?:x),{pattern}"}, {"database.exclude.list": "shop,x"},
        {"database.include.list": "shop,x", "collection.exclude.list": pattern},
    ]  # fmt: skip
    for given in lists:
        made = config(**given, signal_data_collection="x.o")
        filters = Filters(made)
        (match,) = build_stages(made, EIGHT, {})[1:]
        left = 0
        for table in [*NAMES, TableId(namespace="shop", name="orders\n")]:
            expected = any(_fulfils_condition(table, one) for one in match["$match"]["$or"][1:])
            assert expected >= (filters.is_table_captured(table) or str(table) == "x.o"), (given, table)
            left += not expected
        assert left


def test_plain_patterns_are_pushed_down() -> None:
    for pattern in ("shop.orders", r"shop\.orders", r"shop\..*", "shop[.]o.*"):
        assert len(build_stages(config(collection_include_list=pattern), EIGHT, {})) == 2
    made = build_stages(config(collection_include_list="shop.orders", signal_data_collection="cdc.signals"), EIGHT, {})
    assert {"ns.db": "cdc", "ns.coll": "signals"} in made[1]["$match"]["$or"]


def _fulfils_condition(table: TableId, condition: dict[str, Any]) -> bool:
    values = {"ns.db": table.namespace, "ns.coll": table.name}

    def fulfils_one(field: str, expected: Any) -> bool:
        if field in ("$or", "$nor"):
            return any(_fulfils_condition(table, condition) for condition in expected) == (field == "$or")
        if isinstance(expected, str):
            return values[field] == expected
        return (
            re.search(expected["$regex"], values[field], re.I | (re.S if "s" in expected["$options"] else 0))
            is not None
        )

    return all(fulfils_one(field, expected) for field, expected in condition.items())


@pytest.mark.parametrize(
    ("uri", "secure"),
    [
        ("mongodb://a/", False), ("mongodb://a/?replicaSet=r&tls=true", True), ("mongodb://a/?SSL=True&replicaSet=r", True),
        ("mongodb+srv://a.example.org/", True), ("mongodb+srv://a.example.org/?tls=false", False),
    ],
)  # fmt: skip
def test_certificates_are_used_wherever_the_connection_string_asks_for_tls(uri: str, secure: bool) -> None:
    """Without TLS they would be without effect, and are refused."""
    given = {"mongodb_connection_string": uri, "mongodb_ssl_ca": "/ca.pem", "mongodb_ssl_certificate": "/own.pem"}
    if not secure:
        with pytest.raises(ConfigError, match=r"mongodb\.ssl\.(ca|certificate): has no effect without TLS"):
            config(**given)
        assert config(**given, mongodb_ssl_enabled=True).has_tls
        return
    options = _options(config(**given))
    assert (options["tls"], options["tlsCAFile"], options["tlsCertificateKeyFile"]) == (True, "/ca.pem", "/own.pem")


def test_collections_of_queryable_encryption_are_captured_only_by_their_name() -> None:
    """Their names are those of the driver's specification ("Client Side Encryption", encryptedFields)."""
    for name in ("enxcol_.patients.esc", "enxcol_.a.b.ecoc", "enxcol_.patients.ecc", "enxcol_.patients.ecoc.compact"):
        table = TableId(namespace="shop", name=name)
        assert not config().in_scope(table)
        assert not config(collection_include_list=r"shop\..*").in_scope(table)
        assert config(collection_include_list=r"shop\.enxcol_.*").in_scope(table)
    assert config().in_scope(TableId(namespace="shop", name="patients"))


@pytest.mark.parametrize(
    "option",
    [
        "authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s", "authMechanism=MONGODB%2DOIDC",
        "authMechanismProperties=ENVIRONMENT:azure,TOKEN_RESOURCE:x", "authMechanismProperties=AWS_SESSION_TOKEN:t", "proxyHost=evil",
        "AUTHMECHANISM=mongodb-oidc", "replicaSet=rs0;proxyHost=evil",
    ],
)  # fmt: skip
def test_an_option_that_sends_credentials_of_the_machine_is_rejected(option: str) -> None:
    with pytest.raises(ConfigError, match="is not supported"):
        config(**{"mongodb.connection.string": f"mongodb://evil.example:27017/?directConnection=true&{option}"})


def test_the_options_that_people_set_are_accepted() -> None:
    options = (
        "replicaSet=rs0&authSource=admin&authMechanism=SCRAM-SHA-256&tls=true&readPreference=secondaryPreferred&readPreferenceTags=dc:ny"
        "&retryWrites=false&compressors=zlib&appName=cdc&w=majority&maxStalenessSeconds=120&serverSelectionTimeoutMS=5000"
    )
    uri = f"mongodb://a/?{options}"
    assert config(**{"mongodb.connection.string": uri}).connection_uri == uri
    assert pymongo.uri_parser.parse_uri(uri)["options"]["appname"] == "cdc"
