"""The demonstration on the MongoDB test server, a replica set of three members."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from dev.demonstration.kit import CUSTOMERS, NAMES, ORDERS, PRODUCTS, Kit
from dev.servers import ReplicaSet

DATABASE = "inventory"
CARTS, PARCELS = 50, 100
OWNER, ACCOUNT = ("owner", "owner"), ("cdc", "sesame")
_SEPARATOR = "→"


class MongoDbKit(Kit):
    """The MongoDB test server of ``dev.servers``."""

    kind = "mongodb"
    title = "the MongoDB test server: a replica set of three members, each on its own port and folder"
    note = (
        "The MongoDB servers are ours: a stand-in, checked against recordings of a MongoDB 8.0, that MongoDB's own driver talks to.\n"
        "Nothing here has run against a MongoDB. What is shown is the way from change streams to equal tables."
    )
    dag = "inventory_mongodb_continuous"
    connector = "inventory_mongodb"
    conn_id = "inventory_mongodb"
    properties: ClassVar[Mapping[str, Any]] = {"database.include.list": DATABASE}
    change = "drops a collection and makes it again, renames another, and adds a field"
    savepoint = ""
    new_column = ("drop carts", "create carts", f"rename parcels{_SEPARATOR}shipments", "field customers.loyalty")

    def __init__(self) -> None:
        self.server = ReplicaSet({"auth": True})

    def version(self) -> str:
        with self.server.primary().direct() as client:
            return f"ours (it says it is {client.server_info()['version']})"

    def place(self) -> str:
        return "ports " + ", ".join(str(member.port) for member in self.server.members)

    def connection(self) -> dict[str, Any]:
        user, password = ACCOUNT
        return {
            "conn_type": "cdc_mongodb", "host": self.server.url(), "login": user, "password": password, "schema": "admin",
        }  # fmt: skip

    def secrets(self) -> dict[str, Any]:
        user, password = ACCOUNT
        return {
            "mongodb.connection.string": self.server.url(),
            "mongodb.user": user,
            "mongodb.password": password,
            "mongodb.authsource": "admin",
        }

    def fill(self, chance: random.Random) -> None:
        with self.server.primary().direct() as client:  # the first user is made without one
            user, password = OWNER
            client.admin.command({"createUser": user, "pwd": password, "roles": ["root"]})
        with self._client() as client:
            user, password = ACCOUNT
            roles = [{"role": role, "db": "admin"} for role in ("readAnyDatabase", "clusterMonitor")]
            client.admin.command({"createUser": user, "pwd": password, "roles": roles})
            database = client[DATABASE]
            database.customers.insert_many([_customer(chance, i) for i in range(1, CUSTOMERS + 1)])
            database.products.insert_many([_product(chance, i) for i in range(PRODUCTS)])
            database.orders.insert_many([_order(chance, i) for i in range(1, ORDERS + 1)])
            database.carts.insert_many([_cart(chance, i) for i in range(CARTS)])
            database.parcels.insert_many([_parcel(chance, i) for i in range(PARCELS)])

    @contextlib.contextmanager
    def connect(self) -> Iterator[_Connection]:
        with self._client() as client, client.start_session() as session:
            yield _Connection(client, session)

    def switch_log(self) -> None:
        """The primary steps down, and another member takes over."""
        before = self.server.primary()
        user, password = OWNER
        with before.direct(username=user, password=password) as client:
            client.admin.command({"replSetStepDown": 20, "force": True})
        self.server.primary()

    def begins_again(self, error: BaseException) -> bool:
        """A transaction that an election ended is begun again, as MongoDB has it."""
        from pymongo.errors import PyMongoError

        return isinstance(error, PyMongoError) and (
            error.has_error_label("TransientTransactionError")
            or error.has_error_label("UnknownTransactionCommitResult")
        )

    def position(self, document: Mapping[str, Any]) -> str:
        return f"cluster time {document.get('sec')}:{document.get('ord')}"

    def login(self) -> str:
        return f"{self.server.url()}   user {OWNER[0]}, password {OWNER[1]}"

    def _client(self) -> Any:
        user, password = OWNER
        return self.server.connect(username=user, password=password)

    # what the application does

    def inserts(self, cursor: Any, chance: random.Random) -> None:
        cursor.insert("orders", _order(chance))
        if chance.random() < 0.2:
            cursor.replace("carts", _cart(chance, chance.randrange(CARTS)))

    def updates(self, cursor: Any, chance: random.Random) -> None:
        name, number, change, more = chance.choice(_updates(chance))
        cursor.update(name, number, change, **more)

    def deletes(self, cursor: Any, chance: random.Random) -> None:
        cursor.delete("orders", chance.randint(1, ORDERS))

    def key_changes(self, cursor: Any, chance: random.Random) -> None:
        """An ``_id`` cannot be changed: the document is written under another one."""
        old = chance.randrange(PRODUCTS)
        for to, of in ((old + PRODUCTS, old), (old - PRODUCTS // 2, old + PRODUCTS // 2)):
            cursor.move("products", of, to)


class _Connection:
    """A session of the application and its cursor; changes are of one transaction until it is committed."""

    def __init__(self, client: Any, session: Any) -> None:
        self._client, self._database, self._session = client, client[DATABASE], session

    @contextlib.contextmanager
    def cursor(self) -> Iterator[_Connection]:
        yield self

    def commit(self) -> None:
        if self._session.in_transaction:
            self._session.commit_transaction()

    def rollback(self) -> None:
        if self._session.in_transaction:
            self._session.abort_transaction()

    def execute(self, statement: str) -> None:
        """Change a collection as a whole, without a transaction: ``drop``, ``create``, ``rename a→b``, ``field a.b``."""
        what, _, name = statement.partition(" ")
        if what == "drop":
            self._database[name].drop()
        elif what == "create":
            self._database.create_collection(name)
        elif what == "rename":
            old, new = name.split(_SEPARATOR)
            self._database[old].rename(new)
        else:
            collection, field = name.split(".")
            self._database[collection].update_many({}, {"$set": {field: {"points": 7, "since": _make_datetime(0)}}})

    def insert(self, name: str, document: dict[str, Any]) -> None:
        self._database[name].insert_one(document, session=self._begun())

    def replace(self, name: str, document: dict[str, Any]) -> None:
        self._database[name].replace_one({"_id": document["_id"]}, document, upsert=True, session=self._begun())

    def update(self, name: str, id_: Any, change: Any, **more: Any) -> None:
        self._database[name].update_one({"_id": id_}, change, session=self._begun(), **more)

    def delete(self, name: str, id_: Any) -> None:
        self._database[name].delete_one({"_id": id_}, session=self._begun())

    def move(self, name: str, old: Any, new: Any) -> None:
        """Give a document another key, if no other one has it."""
        session, collection = self._begun(), self._database[name]
        document = collection.find_one({"_id": old}, session=session)
        if document and collection.find_one({"_id": new}, session=session) is None:
            collection.delete_one({"_id": old}, session=session)
            collection.insert_one({**document, "_id": new}, session=session)

    def _begun(self) -> Any:
        if not self._session.in_transaction:
            self._session.start_transaction()
        return self._session


def _updates(chance: random.Random) -> list[tuple[str, Any, Any, dict[str, Any]]]:
    """Collection, ``_id``, change and options: one of each kind."""
    order, customer, product = chance.randint(1, ORDERS), chance.randint(1, CUSTOMERS), chance.randrange(PRODUCTS)
    line = {"product": product, "quantity": chance.randint(1, 9), "price": _money(chance)}
    changes: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("orders", order, {"$set": {"status": chance.choice(("open", "paid", "sent"))}, "$inc": {"lines.0.quantity": 1}}, {}),
        ("orders", order, {"$push": {"lines": {"$each": [line], "$slice": -5}}, "$currentDate": {"touched": True}}, {}),
        ("orders", order, {"$pull": {"lines": {"quantity": {"$gte": 8}}}, "$unset": {"note": ""}}, {}),
        ("orders", order, {"$set": {"lines.$[few].gift": True}}, {"array_filters": [{"few.quantity": {"$lte": 2}}]}),
        ("customers", customer, {"$set": {"name.last": chance.choice(NAMES), "address.city": None}}, {}),
        ("customers", customer, {"$mul": {"balance": Decimal128("1.0625")}, "$addToSet": {"labels": chance.choice(NAMES)}}, {}),
        ("customers", customer, {"$rename": {"preferences": "settings"}, "$max": {"visits": chance.randint(0, 99)}}, {}),
        ("products", product, [{"$set": {"size.area": {"$multiply": ["$size.width", "$size.height"]}, "seen": "$$NOW"}}], {}),
        ("products", product, {"$bit": {"flags": {"xor": 5}}, "$pop": {"ratings": -1}, "$min": {"price": _money(chance)}}, {}),
        ("products", product, {"$set": {"description": _text(chance)}}, {}),
    ]  # fmt: skip
    return changes


def _customer(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "_id": number,
        "name": {"first": chance.choice(NAMES), "last": chance.choice(NAMES)},
        "emails": [f"c{number}@example.com", *([f"{number}@example.org"] if chance.random() < 0.3 else [])],
        "birthday": datetime(chance.randint(1930, 2008), chance.randint(1, 12), chance.randint(1, 28), tzinfo=UTC),
        "balance": chance.choice((Decimal128("-0"), _money(chance))),
        "address": {"city": "Zürich", "lines": ["Main Street 1", ""], "place": [8.5 + chance.random(), 47.4]},
        "preferences": {"newsletter": chance.random() < 0.5, "size": chance.randint(34, 48), "x.y": {"$z": 1}},
        "photo": chance.randbytes(8),
        "uuid": Binary(chance.randbytes(16), 4),
    }


def _product(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "_id": number,
        "name": f"{chance.choice(('tool', 'toy', 'book'))} № {number}",
        "size": {"width": chance.random() * 50, "height": chance.choice((0.0, -0.0, 1e300, float("inf"), 2.5))},
        "price": _money(chance),
        "flags": Int64(2**40 + chance.randrange(16)),
        "ratings": [
            {"stars": chance.randint(1, 5), "by": ObjectId(chance.randbytes(12))} for _ in range(chance.randint(0, 3))
        ],
        "pattern": Regex("^a/b", "im"),
        "script": Code("f()"),
        "limits": {"from": MinKey(), "to": MaxKey()},
        "description": _text(chance),
    }


def _order(chance: random.Random, number: int | None = None) -> dict[str, Any]:
    """:param number: its key; one is made when there is none"""
    return {
        "_id": number or ObjectId(chance.randbytes(12)),
        "customer": chance.randint(1, CUSTOMERS),
        "lines": [
            {"product": chance.randrange(PRODUCTS), "quantity": chance.randint(1, 9), "price": _money(chance)}
            for _ in range(chance.randint(1, 4))
        ],
        "ordered": _make_datetime(chance.randrange(10**9)),
        "logged": Timestamp(chance.randrange(2**31), chance.randint(1, 9)),
        "status": "open",
        "note": chance.choice((None, "ring twice", "leave at the door ✉")),
    }


def _cart(chance: random.Random, number: int) -> dict[str, Any]:
    return {"_id": {"shop": "north", "number": number}, "items": [[chance.randrange(PRODUCTS), 1]], "open": True}


def _parcel(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "_id": f"P-{number}",
        "weight": Decimal128("1.50"),
        "events": [{"at": _make_datetime(number), "what": "packed"}],
    }


def _money(chance: random.Random) -> Decimal128:
    return Decimal128(Decimal(chance.randint(100, 999_999)).scaleb(-2))


def _make_datetime(seconds: int) -> datetime:
    return datetime(1969, 12, 31, tzinfo=UTC) + timedelta(seconds=seconds, milliseconds=seconds % 1000)


def _text(chance: random.Random) -> str | None:
    return chance.choice((None, "it's “good” ✓", "long " * 200 + str(chance.random())))
