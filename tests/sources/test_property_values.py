"""Properties of every source, with values that people and programs give: each is taken, or refused by an error that names the property. Definitions are read where DAGs are parsed,
and by pages: whatever else was raised there would stop all of them."""

from __future__ import annotations

import contextlib
import logging
from itertools import product
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources import SOURCES, config_class

VALUES: tuple[Any, ...] = ("[" * 20_000, "(", "\0", 5, 1.5, True, None, [], {}, [[]], '{"a": 1}')
OF_COLLECTIONS = ("document.columns.schema.shop.orders", "snapshot.collection.filter.overrides.shop.orders")
SCHEMAS = (
    '{"$jsonSchema": 5}', '{"properties": {"a": {"bsonType": 5}}}', '{"properties": {"a": {"bsonType": null}}}',
    '{"properties": {"a": {"bsonType": [["int"]]}}}', '{"properties": {"a": {"bsonType": [{}]}}}', '{"properties": []}',
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # of patterns
@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_a_property_with_any_value_is_taken_or_refused(kind: str) -> None:
    config = config_class(kind)
    given = {"topic.prefix": "t", **config.from_connection(host="h", login="u", schema="s"), **config.FORM.stand_ins}
    names = [*filter(None, (field.alias for field in config.model_fields.values())), *OF_COLLECTIONS]
    logging.disable(logging.WARNING)
    try:
        for name, value in product(names, VALUES):
            with contextlib.suppress(ConfigError):
                config.parse({**given, name: value})
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("text", [*SCHEMAS, *(value for value in VALUES if isinstance(value, str) and value != "\0")])
def test_a_schema_of_columns_that_is_none_is_refused_by_its_property(text: str) -> None:
    config = config_class("mongodb")
    given = {"topic.prefix": "t", "mongodb.connection.string": "h", "document.columns.list": r"shop\..*"}
    with (
        contextlib.suppress(ConfigError)
        if text == '{"a": 1}'
        else pytest.raises(ConfigError, match=r"document\.columns\.schema\.shop\.orders")
    ):
        config.parse({**given, "document.columns.schema.shop.orders": text})
    expected = {
        "snapshot.collection.filter.overrides": "shop.orders",
        "snapshot.collection.filter.overrides.shop.orders": text,
    }
    if not text.startswith("{"):
        with pytest.raises(ConfigError, match=r"snapshot\.collection\.filter\.overrides\.shop\.orders"):
            config.parse({**given, **expected})
        with pytest.raises(ConfigError, match=r"cursor\.pipeline"):
            config.parse({**given, "cursor.pipeline": text})
