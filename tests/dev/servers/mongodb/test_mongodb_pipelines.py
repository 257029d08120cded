"""Pipelines of the stand-in that read other collections or write what they make, and what change streams show of it: by MongoDB's manual."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from pymongo.errors import OperationFailure

from dev.servers.mongodb import MongoDb
from tests.support.patience import wait_until

ORDERS = [{"_id": n, "who": n % 3, "tags": ["a", "b"][: n % 3], "t": n * 10} for n in range(6)]
PEOPLE = [{"_id": 0, "name": "Ann", "boss": 1}, {"_id": 1, "name": "Bob", "boss": 2}, {"_id": 7, "name": "Cy"}]


@pytest.fixture(scope="module")
def server() -> Iterator[MongoDb]:
    """A set of one."""
    with MongoDb() as started:
        yield started


@pytest.fixture(scope="module")
def client(server: MongoDb) -> Iterator[Any]:
    """A client of it."""
    with server.connect() as connected:
        yield connected


@pytest.fixture
def shop_database(client: Any) -> Any:
    """A database of two collections and a view."""
    client.drop_database("shop")
    client.shop.orders.insert_many(ORDERS)
    client.shop.people.insert_many(PEOPLE)
    client.shop.create_collection("seen", viewOn="people", pipeline=[{"$match": {"_id": {"$lt": 5}}}])
    return client.shop


def _run_pipeline(shop: Any, *stages: dict[str, Any], of: str = "orders") -> list[dict[str, Any]]:
    return list(shop[of].aggregate(list(stages)))


# stages that read


def test_a_lookup_by_fields_finds_what_is_equal(shop_database: Any) -> None:
    lookup = {"from": "people", "localField": "who", "foreignField": "_id", "as": "by.who"}
    found = _run_pipeline(shop_database, {"$lookup": lookup})
    assert [[person["name"] for person in order["by"]["who"]] for order in found] == [["Ann"], ["Bob"], [], ["Ann"], ["Bob"], []]  # fmt: skip
    unwound = _run_pipeline(
        shop_database, {"$lookup": lookup}, {"$unwind": "$by.who"}, {"$match": {"by.who.name": "Bob"}}
    )
    assert [order["_id"] for order in unwound] == [1, 4]


@pytest.mark.parametrize(
    ("local", "foreign", "found"),
    [
        ("none", "none", [0, 1, 2, 3, 4]),  # a field that is not there is null
        ("none", "x", [0, 4]), ("one", "x", [1, 2]), ("list", "x", [1, 2, 3]), ("deep.n", "x", [1, 2, 3]), ("one", "deep.n", [2]), ("empty", "x", []),
    ],
)  # fmt: skip
def test_arrays_and_nothing_are_looked_up_as_a_filter_would(
    shop_database: Any, local: str, foreign: str, found: list[int]
) -> None:
    others = [{"_id": 0, "x": None}, {"_id": 1, "x": 1}, {"_id": 2, "x": [1, 2], "deep": [{"n": 1.0}]}, {"_id": 3, "x": 2.0}, {"_id": 4}]  # fmt: skip
    shop_database.others.insert_many(others)
    shop_database.mine.insert_one({"_id": 1, "one": 1, "list": [1, 2], "deep": [{"n": 1}, {"n": 2}], "empty": []})
    (mine,) = _run_pipeline(shop_database, {"$lookup": {"from": "others", "localField": local, "foreignField": foreign, "as": "f"}}, of="mine")  # fmt: skip
    assert [other["_id"] for other in mine["f"]] == found


def test_a_lookup_by_a_pipeline_has_the_variables_of_its_document(shop_database: Any) -> None:
    inner = [{"$match": {"$expr": {"$lt": ["$_id", "$$who"]}}}, {"$project": {"_id": 0, "n": {"$concat": ["$name", "!"]}, "w": "$$who"}}]  # fmt: skip
    found = _run_pipeline(
        shop_database, {"$lookup": {"from": "seen", "let": {"who": "$who"}, "pipeline": inner, "as": "f"}}
    )
    assert found[2]["f"] == [{"n": "Ann!", "w": 2}, {"n": "Bob!", "w": 2}]
    assert found[0]["f"] == []
    both = {"from": "people", "localField": "who", "foreignField": "_id", "let": {"t": "$t"}, "as": "f"}
    both["pipeline"] = [{"$match": {"$expr": {"$gt": ["$$t", 20]}}}]
    assert [len(order["f"]) for order in _run_pipeline(shop_database, {"$lookup": both})] == [0, 0, 0, 1, 1, 0]
    nested = {"from": "orders", "pipeline": [{"$lookup": {"from": "people", "localField": "who", "foreignField": "_id", "as": "p"}}, {"$match": {"p": []}}], "as": "f"}  # fmt: skip
    assert [order["_id"] for order in _run_pipeline(shop_database, {"$lookup": nested}, of="people")[0]["f"]] == [2, 5]


def test_documents_are_followed_from_one_to_the_next(shop_database: Any) -> None:
    graph = {"from": "people", "startWith": "$who", "connectFromField": "boss", "connectToField": "_id", "as": "chain", "depthField": "d"}  # fmt: skip
    found = _run_pipeline(shop_database, {"$graphLookup": graph})
    assert [[(p["_id"], p["d"]) for p in order["chain"]] for order in found[:3]] == [[(0, 0), (1, 1)], [(1, 0)], []]
    (first, *_) = _run_pipeline(shop_database, {"$graphLookup": {**graph, "maxDepth": 0}})
    assert [p["_id"] for p in first["chain"]] == [0]
    (first, *_) = _run_pipeline(shop_database, {"$graphLookup": {**graph, "restrictSearchWithMatch": {"name": "Bob"}}})
    assert first["chain"] == []


def test_pipelines_are_put_one_after_another_and_beside_each_other(shop_database: Any) -> None:
    union = {"$unionWith": {"coll": "seen", "pipeline": [{"$set": {"t": 1}}]}}
    assert [document["_id"] for document in _run_pipeline(shop_database, {"$match": {"_id": 5}}, union)] == [5, 0, 1]
    assert len(_run_pipeline(shop_database, {"$unionWith": "people"})) == 9
    assert len(_run_pipeline(shop_database, {"$unionWith": "nothing"})) == 6
    assert [d["x"] for d in shop_database.people.aggregate([{"$limit": 1}, {"$unionWith": {"pipeline": [{"$documents": [{"x": 1}]}]}}, {"$match": {"x": 1}}])] == [1]  # fmt: skip
    bucket = {"groupBy": "$t", "boundaries": [0, 20, 40], "default": "more", "output": {"n": {"$sum": 1}, "ids": {"$push": "$_id"}}}  # fmt: skip
    (facets,) = _run_pipeline(shop_database, {"$facet": {"n": [{"$count": "n"}], "by": [{"$bucket": bucket}], "none": [{"$match": {"x": 1}}]}})  # fmt: skip
    by = [{"_id": 0, "n": 2, "ids": [0, 1]}, {"_id": 20, "n": 2, "ids": [2, 3]}, {"_id": "more", "n": 2, "ids": [4, 5]}]
    assert facets == {"n": [{"n": 6}], "by": by, "none": []}


REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"$lookup": 1}, 9), ({"$lookup": {"from": "people", "as": "f"}}, 9), ({"$lookup": {"from": "people", "localField": "a", "as": "f"}}, 9),
    ({"$lookup": {"from": "people", "pipeline": []}}, 9), ({"$lookup": {"from": "people", "pipeline": [], "as": "f", "nonsense": 1}}, 9),
    ({"$lookup": {"from": "people", "pipeline": [{"$nonsense": 1}], "as": "f"}}, 40324), ({"$lookup": {"from": "people", "localField": "a", "foreignField": "b", "let": {}, "as": "f"}}, 9),
    ({"$unionWith": {"nonsense": 1}}, 9), ({"$unionWith": {"coll": "people", "pipeline": [{"$out": "x"}]}}, 31441), ({"$facet": {}}, 40169),
    ({"$facet": {"a": 1}}, 40170), ({"$facet": {"a": [{"$facet": {"b": []}}]}}, 40600), ({"$facet": {"a": [{"$out": "x"}]}}, 40600),
    ({"$graphLookup": {"from": "people", "as": "f"}}, 40105), ({"$bucket": {"groupBy": "$t", "boundaries": [0]}}, 40192),
    ({"$bucket": {"groupBy": "$t", "boundaries": [1, 0]}}, 40194), ({"$bucket": {"groupBy": "$t", "boundaries": [0, 10]}}, 40066),
    ({"$out": 1}, 16990), ({"$out": "system.x"}, 17385), ({"$out": {"db": "admin", "coll": "x"}}, 31321), ({"$out": "capped"}, 17152), ({"$out": "seen"}, 166),
    ({"$out": {"db": "shop", "coll": "x", "timeseries": {"timeField": "t"}}}, 9), ({"$merge": 1}, 14), ({"$merge": {}}, 40414), ({"$merge": {"into": "x", "nonsense": 1}}, 40415),
    ({"$merge": "system.x"}, 31319), ({"$merge": {"into": {"db": "local", "coll": "x"}}}, 31320), ({"$merge": {"into": "people", "on": "name"}}, 51183),
    ({"$merge": {"into": "people", "whenMatched": "nonsense"}}, 2), ({"$merge": {"into": "people", "whenNotMatched": "nonsense"}}, 2),
    ({"$merge": {"into": "people", "let": {"a": 1}}}, 51199), ({"$merge": {"into": "people", "whenMatched": [], "let": {"new": 1}}}, 51273),
    ({"$merge": {"into": "seen"}}, 166), ({"$setWindowFields": {}}, 40324),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "code"), REFUSED, ids=str)
def test_what_cannot_be_is_refused_with_the_servers_code_and_changes_nothing(
    shop_database: Any, stage: dict[str, Any], code: int
) -> None:
    shop_database.create_collection("capped", capped=True, size=4096)
    names = sorted(shop_database.list_collection_names())
    with pytest.raises(OperationFailure) as failed:
        _run_pipeline(shop_database, stage)
    assert failed.value.code == code
    assert sorted(shop_database.list_collection_names()) == names
    assert list(shop_database.people.find()) == PEOPLE


# $out


def _events(stream: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the events of a stream: kind, collection, and the document's key or the new name."""
    while (event := stream.try_next()) is not None:
        about = event.get("to", {}).get("coll") or event.get("documentKey", {}).get("_id")
        yield event["operationType"], event.get("ns", {}).get("coll", "").split(".")[0], about


@pytest.mark.parametrize("exists", [False, True])
def test_an_output_is_made_beside_its_target_and_renamed_over_it(client: Any, shop_database: Any, exists: bool) -> None:
    if exists:
        shop_database.create_collection("sums", changeStreamPreAndPostImages={"enabled": True})
        shop_database.sums.create_index("n", unique=True, name="by_n")
        shop_database.sums.insert_one({"_id": "old", "n": -1})
    pipeline = [{"$group": {"_id": "$who", "n": {"$sum": "$t"}}}, {"$out": "sums"}]
    soon = {"max_await_time_ms": 20}
    with shop_database.watch(show_expanded_events=True, **soon) as expanded, shop_database.watch(**soon) as plain, shop_database.sums.watch(**soon) as target:  # fmt: skip
        assert list(shop_database.orders.aggregate(pipeline)) == []
        index = [("createIndexes", "tmp", None)] if exists else []
        inserts = [("insert", "tmp", n) for n in range(3)]
        assert list(_events(expanded)) == [("create", "tmp", None), *index, *inserts, ("rename", "tmp", "sums")]
        assert list(_events(plain)) == [*inserts, ("rename", "tmp", "sums")]
        assert list(_events(target)) == [("rename", "tmp", "sums"), ("invalidate", "", None)]
    assert list(shop_database.sums.find()) == [{"_id": 0, "n": 30}, {"_id": 1, "n": 50}, {"_id": 2, "n": 70}]
    assert ("by_n" in shop_database.sums.index_information()) is exists
    (listed,) = shop_database.list_collections(filter={"name": "sums"})
    assert listed["options"] == ({"changeStreamPreAndPostImages": {"enabled": True}} if exists else {})
    client.drop_database("elsewhere")
    list(shop_database.orders.aggregate([{"$match": {"_id": 1}}, {"$out": {"db": "elsewhere", "coll": "c"}}]))
    assert client.elsewhere.list_collection_names() == ["c"]
    list(shop_database.orders.aggregate([{"$match": {"_id": "none"}}, {"$out": {"db": "elsewhere", "coll": "c"}}]))
    assert list(client.elsewhere.c.find()) == []


def test_an_output_that_fails_leaves_its_target_as_it_was(shop_database: Any) -> None:
    shop_database.sums.create_index("n", unique=True)
    shop_database.sums.insert_one({"_id": "old", "n": 1})
    with shop_database.sums.watch(max_await_time_ms=20) as stream:
        with pytest.raises(OperationFailure) as failed:
            _run_pipeline(shop_database, {"$project": {"n": {"$mod": ["$_id", 2]}}}, {"$out": "sums"})
        assert failed.value.code == 11000
        assert stream.try_next() is None
    assert list(shop_database.sums.find()) == [{"_id": "old", "n": 1}]
    assert not [name for name in shop_database.list_collection_names() if name.startswith("tmp")]


@pytest.mark.parametrize("stage", [{"$out": "x"}, {"$merge": "x"}])
def test_what_writes_is_last_and_in_no_transaction(client: Any, shop_database: Any, stage: dict[str, Any]) -> None:
    with pytest.raises(OperationFailure) as failed:
        _run_pipeline(shop_database, stage, {"$limit": 1})
    assert failed.value.code == 40601
    with client.start_session() as session:
        session.start_transaction()
        with pytest.raises(OperationFailure) as failed:
            shop_database.orders.aggregate([stage], session=session)
        assert failed.value.code == 263
        session.abort_transaction()
    with pytest.raises(OperationFailure) as failed, shop_database.watch([stage]):
        pass
    assert failed.value.code == 20


# $merge


MATCHED: dict[str, Any] = {
    "replace": "replace", "merge": "merge", "keepExisting": "keepExisting", "fail": "fail",
    "pipeline": [{"$set": {"a": {"$add": ["$a", "$$new.a", "$$more"]}}}],
}  # fmt: skip
ALLOWED = {*itertools.product(("replace", "merge", "pipeline"), ("insert", "fail", "discard")), ("keepExisting", "insert"), ("fail", "insert")}  # fmt: skip


def _merged_document(mode: str, there: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the document that a merge makes of the one that is there."""
    if mode == "replace":
        return {"_id": there["_id"], **{name: value for name, value in new.items() if name != "_id"}}
    if mode == "merge":
        return {**there, **new}
    return {**there, "a": there["a"] + new["a"] + 100} if mode == "pipeline" else there


@pytest.mark.parametrize("on", [None, "k", ["k", "j"]], ids=str)
@pytest.mark.parametrize(("mode", "unmatched"), list(itertools.product(MATCHED, ("insert", "fail", "discard"))))
def test_a_merge_does_what_its_modes_say(shop_database: Any, mode: str, unmatched: str, on: Any) -> None:
    """Against a model, for documents some of which are there; the events are those of a client that writes one by one."""
    fields = [on] if isinstance(on, str) else on or ["_id"]
    if on is not None:
        shop_database.sums.create_index([(field, 1) for field in fields], unique=True)
    chosen = random.Random(f"{mode}{unmatched}{on}").sample(range(12), 6)
    model = {n: {"_id": n, "k": n, "j": 0, "a": n, "old": True} for n in chosen}
    shop_database.sums.insert_many(list(model.values()))
    new = [{"k": n, "j": 0, "a": n * 10, "extra": n} | ({"_id": n} if on is None else {}) for n in range(12)]
    shop_database.source.insert_many([{"_id": n, "d": document} for n, document in enumerate(new)])
    spec = {"into": "sums", "whenMatched": MATCHED[mode], "whenNotMatched": unmatched}
    spec |= {"on": on} if on is not None else {}
    spec |= {"let": {"more": {"$literal": 100}}} if mode == "pipeline" else {}
    expected: list[tuple[str, int]] = []
    code = None if (mode, unmatched) in ALLOWED else 51181
    for document in new if code is None else ():
        n = document["k"]
        if n not in model and unmatched == "fail":
            code = 13113
            break
        if n in model and mode == "fail":
            code = 11000
            break
        if n in model:
            after = _merged_document(mode, model[n], document)
            expected += [("change", n)] if after != model[n] else []
            model[n] = after
        elif unmatched == "insert":
            model[n] = document
            expected.append(("insert", n))
    with shop_database.sums.watch(full_document="updateLookup", max_await_time_ms=20) as stream:
        try:
            shop_database.source.aggregate([{"$sort": {"_id": 1}}, {"$replaceWith": "$d"}, {"$merge": spec}])
            found = None
        except OperationFailure as error:
            found = error.code
        assert found == code
        events = []
        while (event := stream.try_next()) is not None:
            kind = event["operationType"]
            events.append((kind if kind == "insert" else "change", event["fullDocument"]["k"]))
    assert events == expected
    rows = sorted(shop_database.sums.find(), key=lambda row: row["k"])
    assert [{"_id": row["_id"], **document} for row, (_, document) in zip(rows, sorted(model.items()), strict=True)] == rows  # fmt: skip


def test_the_key_of_documents_must_exist(shop_database: Any) -> None:
    shop_database.sums.create_index("k", unique=True)
    for value in ({}, {"k": None}, {"k": [1]}):
        with pytest.raises(OperationFailure) as failed:
            shop_database.orders.aggregate([{"$limit": 1}, {"$replaceWith": {"$literal": {"_id": 1, **value}}}, {"$merge": {"into": "sums", "on": "k"}}])  # fmt: skip
        assert failed.value.code == 51132


# who may, and what is beside


PIPELINES: dict[str, list[dict[str, Any]]] = {
    "lookup": [{"$lookup": {"from": "people", "pipeline": [], "as": "f"}}], "facet": [{"$facet": {"a": [{"$unionWith": "people"}]}}],
    "out": [{"$out": "sums"}], "merge": [{"$merge": "sums"}], "add": [{"$match": {"_id": "none"}}, {"$merge": {"into": "sums", "whenMatched": "fail"}}],
}  # fmt: skip


def test_a_user_needs_the_rights_on_all_that_a_pipeline_reads_and_writes() -> None:
    with MongoDb({"auth": True}) as guarded, guarded.connect() as client:
        client.admin.command({"createUser": "root", "pwd": "x", "roles": ["root"]})
        with guarded.connect(username="root", password="x") as root:
            root.shop.orders.insert_one({"_id": 1})

            def allowed_pipelines(*rights: tuple[str, list[str]]) -> set[str]:
                """Return the pipelines that a user may run who may find in ``orders`` and has these rights."""
                name = f"user{len(root.admin.command('usersInfo', 1)['users'])}"
                on = [{"resource": {"db": "shop", "collection": collection}, "actions": actions} for collection, actions in (("orders", ["find"]), *rights)]  # fmt: skip
                root.admin.command({"createRole": name, "privileges": on, "roles": []})
                root.admin.command({"createUser": name, "pwd": "x", "roles": [name]})
                found = set()
                with guarded.connect(username=name, password="x", authSource="admin") as user:
                    for what, pipeline in PIPELINES.items():
                        try:
                            user.shop.orders.aggregate(pipeline)
                            found.add(what)
                        except OperationFailure as error:
                            if error.code != 13:
                                raise
                return found

            assert allowed_pipelines() == set()
            assert allowed_pipelines(("people", ["find"])) == {"lookup", "facet"}
            assert allowed_pipelines(("sums", ["insert", "remove"])) == {"out", "add"}
            assert allowed_pipelines(("sums", ["insert", "update"])) == {"merge", "add"}


def test_documents_expire_by_their_index_with_an_event(server: MongoDb, shop_database: Any) -> None:
    now = shop_database.client.admin.command("hello")["localTime"]
    old = DatetimeMS(int(now.timestamp() * 1000) - 100_000_000)
    shop_database.sessions.create_index(
        "at", expireAfterSeconds=60, partialFilterExpression={"keep": {"$exists": False}}
    )
    with shop_database.sessions.watch(max_await_time_ms=20) as stream:
        shop_database.sessions.insert_many([
            {"_id": 1, "at": old}, {"_id": 2, "at": now}, {"_id": 3, "at": [now, old]}, {"_id": 4, "at": "old"}, {"_id": 5}, {"_id": 6, "at": old, "keep": 1},
        ])  # fmt: skip
        was = shop_database.client.admin.command({"setParameter": 1, "ttlMonitorSleepSecs": 1})["was"]
        try:
            wait_until(lambda: shop_database.sessions.count_documents({}) == 4, "documents have expired")
        finally:
            shop_database.client.admin.command({"setParameter": 1, "ttlMonitorSleepSecs": was})
        assert {row["_id"] for row in shop_database.sessions.find()} == {2, 4, 5, 6}
        events = list(_events(stream))
    assert events[6:] == [("delete", "sessions", 1), ("delete", "sessions", 3)]


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        ({"sparse": True}, [{}, {}, {"a": 1}], {"a": 1}), ({}, [{}, {"a": 1}], {"a": None}),
        ({"partialFilterExpression": {"b": {"$gt": 0}}}, [{"a": 1}, {"a": 1}, {"a": 1, "b": 1}], {"a": 1, "b": 2}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
def test_a_unique_index_speaks_of_the_documents_that_it_has(
    shop_database: Any, options: dict[str, Any], good: list[dict[str, Any]], bad: dict[str, Any], together: bool
) -> None:
    shop_database.some.create_index("a", unique=True, **options)
    if together:
        shop_database.some.insert_many([dict(document) for document in good])
    for document in () if together else good:
        shop_database.some.insert_one(dict(document))
    with pytest.raises(OperationFailure) as failed:
        shop_database.some.insert_one(bad)
    assert failed.value.code == 11000
