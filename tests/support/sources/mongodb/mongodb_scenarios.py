"""Work on a MongoDB that both Debezium's engine and ours capture, so that their records can be put beside each other.

Each :class:`Scenario` has its own database ``inv``: :attr:`Scenario.before` is what a snapshot finds there, :attr:`Scenario.work` what the stream has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bson.raw_bson import RawBSONDocument

from tests.support.sources.mongodb.mongodb_json import write

DATABASE = "inv"
TOPIC = "p"
SIGNALS = "signals"
"""The collection of signals, where a scenario has one."""
_IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}
MODES = (
    "change_streams", "change_streams_update_full", "change_streams_with_pre_image", "change_streams_update_full_with_pre_image",
)  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """Some work.

    :param properties: of both connectors, besides those that all have
    """

    before: Callable[[Any], None]
    work: Callable[[Any], None]
    properties: dict[str, str] = field(default_factory=dict)


TYPES: dict[str, Any] = {
    "double": {"$numberDouble": "1.5"}, "whole": {"$numberDouble": "3.0"}, "large": {"$numberDouble": "1e+21"}, "tiny": {"$numberDouble": "5e-324"},
    "nan": {"$numberDouble": "NaN"}, "infinity": {"$numberDouble": "Infinity"}, "below": {"$numberDouble": "-Infinity"}, "minus zero": {"$numberDouble": "-0.0"},
    "text": "bolt", "empty": "", "quotes": 'a "b" \\ \'c\'', "controls": "a\tb\nc\u0001\u007f", "letters": "é ß 漢 🙂", "joined": "e\u0301 \u200d \ufeff",
    "document": {"a": {"b": []}, "c": {}}, "array": [{"$numberInt": "1"}, "x", [], {}], "no data": {"$binary": {"base64": "", "subType": "00"}},
    "binary": {"$binary": {"base64": "a2E=", "subType": "00"}}, "old binary": {"$binary": {"base64": "AgAAAGth", "subType": "02"}},
    "function": {"$binary": {"base64": "a2E=", "subType": "01"}}, "old uuid": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "03"}},
    "uuid": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "04"}}, "md5": {"$binary": {"base64": "AAECAwQFBgcICQoLDA0ODw==", "subType": "05"}},
    "own": {"$binary": {"base64": "a2E=", "subType": "80"}}, "undefined": {"$undefined": True}, "id": {"$oid": "596e275826f08b2730779e1f"}, "true": True, "false": False,
    "date": {"$date": {"$numberLong": "1700000000123"}}, "epoch": {"$date": {"$numberLong": "0"}}, "before 1970": {"$date": {"$numberLong": "-1"}},
    "year 10000": {"$date": {"$numberLong": "253402300800000"}}, "null": None, "regex": {"$regularExpression": {"pattern": "^a\"/b", "options": "im"}},
    "pointer": {"$dbPointer": {"$ref": "inv.x", "$id": {"$oid": "596e275826f08b2730779e1f"}}}, "code": {"$code": "function() { return \"x\"; }"},
    "symbol": {"$symbol": "s\"y"}, "scoped": {"$code": "f()", "$scope": {"n": {"$numberInt": "1"}}}, "int": {"$numberInt": "-7"},
    "timestamp": {"$timestamp": {"t": 4294967295, "i": 1}}, "long": {"$numberLong": "9223372036854775807"}, "decimal": {"$numberDecimal": "1.50"},
    "exponent": {"$numberDecimal": "1E+3"}, "fine": {"$numberDecimal": "-0.00000001"}, "decimal nan": {"$numberDecimal": "NaN"},
    "decimal infinity": {"$numberDecimal": "-Infinity"}, "min": {"$minKey": 1}, "max": {"$maxKey": 1},
}  # fmt: skip
"""A value of each type of BSON, and of those that are written in several ways, in canonical extended JSON."""
NO_KEYS = ("array", "undefined", "regex", "decimal", "decimal nan", "decimal infinity")
"""What the server takes for no ``_id``, and what is the same number as another one."""
NAMES = ("a.b", "$x", 'q"uote', "back\\slash", "", " ", "é", "a\nb", "${x}", "0")
"""Names of fields as they may come, also where an update has to tell them from paths."""
COLLECTIONS = ("my.items", "we ird", "q'uote", 'dou"ble', "été", "dash-ed_1", "{x}")
_LARGE = 9_000_000


def _raw_document(**document: Any) -> RawBSONDocument:
    """A document of values in canonical extended JSON; ``id`` is its ``_id``."""
    return RawBSONDocument(write({"_id" if name == "id" else name: value for name, value in document.items()}))


def _number(value: int) -> dict[str, str]:
    return {"$numberInt": str(value)}


def _types_before(database: Any) -> None:
    for name in ("items", "keys", "later"):
        database.create_collection(name, **_IMAGES)
    database["items"].insert_one(RawBSONDocument(write({"_id": _number(1), **TYPES})))
    _keys(database["keys"])


def _keys(collection: Any) -> None:
    for name, value in TYPES.items():
        if name not in NO_KEYS:
            collection.insert_one(_raw_document(id=value, name=name))


def _types_work(database: Any) -> None:
    items = database["items"]
    items.insert_one(RawBSONDocument(write({"_id": _number(2), **TYPES})))
    items.insert_one({"_id": 3})
    for name, value in TYPES.items():
        items.update_one({"_id": 3}, {"$set": _raw_document(changed={name: value})})
    database.command({"update": "items", "updates": [{"q": {"_id": 2}, "u": RawBSONDocument(write(TYPES))}]})
    items.delete_one({"_id": 1})
    _keys(database["later"])
    for name in ("keys", "later"):
        for type_ in sorted(set(TYPES) - set(NO_KEYS)):
            database[name].update_one({"name": type_}, {"$set": {"n": 1}})
            database[name].delete_one({"name": type_})


def _updates_before(database: Any) -> None:
    database.create_collection("items", **_IMAGES)
    database["items"].insert_many(
        [{"_id": n, "n": n, "tags": [*"abcdef"], "deep": {"a": {"b": 1, "c": 2}}} for n in range(9)]
    )


def _updates_work(database: Any) -> None:
    items = database["items"]
    for update in (
        {"$set": {"n": 7}}, {"$set": {"deep.a.b": 5, "new": None}}, {"$unset": {"deep.a.c": 1}}, {"$push": {"tags": "g"}}, {"$pop": {"tags": 1}},
        {"$set": {"tags.1": "B", "n": 8}, "$unset": {"new": 1}}, [{"$set": {"tags": {"$slice": ["$tags", 2]}}}], {"$pull": {"tags": "a"}},
        {"$rename": {"n": "m"}}, {"$set": {"deep": {}}}, [{"$replaceWith": {"_id": "$_id", "other": True}}],
    ):  # fmt: skip
        items.update_one({"_id": 1}, update)
    items.replace_one({"_id": 2}, {"n": [1, {"x": 2}]})
    items.update_one({"_id": 3}, {"$set": {"n": "gone soon"}})
    items.delete_one({"_id": 3})
    items.update_many({"_id": {"$in": [4, 5]}}, {"$inc": {"n": 100}})
    items.find_one_and_update({"_id": 6}, {"$set": {"n": 0}}, upsert=True)
    items.update_one({"_id": "new"}, {"$set": {"n": 1}}, upsert=True)
    items.delete_many({"_id": {"$in": [7, 8]}})


def _names_before(database: Any) -> None:
    for collection in COLLECTIONS:
        database.create_collection(collection, **_IMAGES)
        database[collection].insert_one({"_id": 1, **{name: name for name in NAMES if not name.startswith("$")}})


def _names_work(database: Any) -> None:
    for collection in (database[name] for name in COLLECTIONS):
        collection.insert_one({"_id": 'k"e.y$', "n": dict.fromkeys(NAMES, 1)})
        for name in NAMES[2:]:
            if name and not name.startswith("$"):
                collection.update_one({"_id": 1}, {"$set": {name: {"in": name}}})
        for name in NAMES[:2]:
            setting = {"$setField": {"field": {"$literal": name}, "input": "$$ROOT", "value": 2}}
            collection.update_one({"_id": 1}, [{"$replaceWith": setting}])
        collection.update_one({"_id": 1}, {"$unset": {'q"uote': 1, "é": 1}})
        unsetting = {"$unsetField": {"field": {"$literal": "a.b"}, "input": "$$ROOT"}}
        collection.update_one({"_id": 1}, [{"$replaceWith": unsetting}])
        collection.delete_one({"_id": 1})


def _transactions_before(database: Any) -> None:
    for name in ("items", "others"):
        database.create_collection(name, **_IMAGES)
        database[name].insert_one({"_id": "before"})


def _transactions_work(database: Any) -> None:
    items, others = database["items"], database["others"]
    items.insert_one({"_id": 0})
    with database.client.start_session() as session:
        for first in (1, 10):
            with session.start_transaction():
                items.insert_one({"_id": first}, session=session)
                others.insert_one({"_id": first}, session=session)
                items.update_one({"_id": first}, {"$set": {"n": 1}}, session=session)
                items.delete_one({"_id": first}, session=session)
                others.replace_one({"_id": first}, {"n": 2}, session=session)
        session.start_transaction()
        items.insert_one({"_id": 99}, session=session)
        session.abort_transaction()
        with session.start_transaction():
            items.insert_one({"_id": 20}, session=session)
    others.update_one({"_id": 1}, {"$set": {"n": 3}})


def _split_before(database: Any) -> None:
    database.create_collection("items", **_IMAGES)
    database["items"].insert_one({"_id": 1, "pad": "x" * _LARGE, "n": 0})


def _split_work(database: Any) -> None:
    database["items"].update_one({"_id": 1}, {"$set": {"n": 1}})
    database["items"].insert_one({"_id": 2})


def _lookup_work(database: Any) -> None:
    """Documents are looked up when the work is over: updates that follow each other have the same, and some have none any more."""
    items = database["items"]
    for number in range(3):
        items.update_many({"_id": {"$lt": 4}}, {"$set": {"n": number}, "$inc": {"deep.a.b": 1}})
    items.delete_one({"_id": 0})
    items.replace_one({"_id": 1}, {"other": True})
    items.update_one({"_id": 2}, {"$unset": {"n": 1}})
    items.delete_one({"_id": 3})
    items.insert_one({"_id": 3, "n": "another"})


def _incremental_before(database: Any) -> None:
    for name in ("items", SIGNALS):
        database.create_collection(name, **_IMAGES)
    database["items"].insert_many([{"_id": n, "n": n} for n in range(6)])


def _incremental_work(database: Any) -> None:
    database["items"].update_one({"_id": 1}, {"$set": {"n": "before"}})
    database[SIGNALS].insert_one(
        {
            "_id": "ask",
            "type": "execute-snapshot",
            "data": {"type": "incremental", "data-collections": [f"{DATABASE}.items"]},
        }
    )
    database["items"].update_one({"_id": 2}, {"$set": {"n": "after"}})


def _mode(mode: str) -> dict[str, str]:
    return {"capture.mode": mode} | ({"capture.mode.full.update.type": "post_image"} if "update_full" in mode else {})


_BOTH = _mode(MODES[-1])
SCENARIOS: dict[str, Scenario] = {
    "types": Scenario(_types_before, _types_work, _BOTH),
    **{mode: Scenario(_updates_before, _updates_work, _mode(mode)) for mode in MODES},
    "names": Scenario(_names_before, _names_work, _BOTH),
    "transactions": Scenario(_transactions_before, _transactions_work, _BOTH | {"provide.transaction.metadata": "true"}),
    "lookup": Scenario(_updates_before, _lookup_work, {"capture.mode": MODES[-1]}),
    "incremental": Scenario(
        _incremental_before, _incremental_work,
        _BOTH | {"signal.data.collection": f"{DATABASE}.{SIGNALS}", "incremental.snapshot.chunk.size": "4"},
    ),
    "split": Scenario(_split_before, _split_work, _BOTH | {"cursor.oversize.handling.mode": "split"}),
}  # fmt: skip
