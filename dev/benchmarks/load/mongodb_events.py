"""Change events for the MongoDB benchmark: made once on the stand-in, and kept as bytes as its change stream sends them."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dev import paths
from dev.servers.mongodb import MongoDb

DATABASE, COLLECTION = "bench", "orders"
FOLDER = paths.HOME / "bench" / "mongodb"
SMALL, WIDE = 40_000, 1_000
VERSION = 1
"""Version of the work; another version makes the files again."""


def ensure(kind: str, progress: Callable[[str], None]) -> Path:
    """The file of one kind: ``small`` (40,000 inserts, updates, replacements and deletions with both images) or ``wide`` (1,000 inserts of 20 KB)."""
    file = FOLDER / f"{kind}-{VERSION}.bson"
    with paths.hold_lock("bench-mongodb"):
        if not file.exists():
            FOLDER.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")
            with MongoDb() as server, part.open("wb") as out:
                for count, data in _record_events(
                    server, _write_small_documents if kind == "small" else _write_wide_documents
                ):
                    out.write(data)
                    progress(f"{count:,} change events")
            part.rename(file)
    return file


def _record_events(server: MongoDb, work: Callable[[Any, random.Random], Iterator[int]]) -> Iterator[tuple[int, bytes]]:
    """The raw events of some work, as they come."""
    from bson.codec_options import CodecOptions
    from bson.raw_bson import RawBSONDocument

    with server.connect() as client:
        orders = client[DATABASE].create_collection(COLLECTION, changeStreamPreAndPostImages={"enabled": True})
        raw = orders.with_options(CodecOptions(document_class=RawBSONDocument))
        options = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable"}
        with raw.watch(**options) as stream:
            seen = 0
            for written in work(orders, random.Random(5)):
                while seen < written:
                    seen += 1
                    yield seen, next(stream).raw


def _write_small_documents(orders: Any, dice: random.Random) -> Iterator[int]:
    """Some work, and how many events there are after each part of it."""
    from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

    alive: list[int] = []
    for start in range(0, SMALL, 1000):
        work: list[Any] = []
        for number in range(start, start + 1000):
            kind = dice.random() if len(alive) > 100 else 0.0
            if kind < 0.4:
                work.append(InsertOne({"_id": number, **_order(dice, number)}))
                alive.append(number)
            elif kind < 0.8:
                change = {
                    "$set": {
                        "status": dice.choice(("new", "sent", "done")),
                        "lines.0.qty": dice.randint(1, 99),
                        "n": number,
                    }
                }
                work.append(UpdateOne({"_id": dice.choice(alive)}, change))
            elif kind < 0.9:
                work.append(ReplaceOne({"_id": dice.choice(alive)}, _order(dice, number)))
            else:
                work.append(DeleteOne({"_id": alive.pop(dice.randrange(len(alive)))}))
        orders.bulk_write(work)
        yield start + 1000


def _write_wide_documents(orders: Any, dice: random.Random) -> Iterator[int]:
    for start in range(0, WIDE, 100):
        orders.insert_many([{"_id": n, **_wide_order(dice, n)} for n in range(start, start + 100)])
        yield start + 100


def _order(dice: random.Random, number: int) -> dict[str, Any]:
    import datetime

    from bson import Decimal128, ObjectId

    return {
        "n": number,
        "customer": ObjectId(dice.randbytes(12)),
        "amount": Decimal128(f"{dice.randint(1, 99999)}.{dice.randint(10, 99)}"),
        "placed": datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=number),
        "status": dice.choice(("new", "sent", "done")),
        "lines": [
            {"sku": _word(dice, 6), "qty": dice.randint(1, 9), "price": round(dice.uniform(1, 100), 2)}
            for _ in range(dice.randint(1, 3))
        ],
        "note": " ".join(_word(dice, 7) for _ in range(5)),
    }


def _wide_order(dice: random.Random, number: int) -> dict[str, Any]:
    return _order(dice, number) | {f"part{n:03}": _order(dice, n) for n in range(90)}


def _word(dice: random.Random, length: int) -> str:
    return "".join(dice.choices(string.ascii_lowercase, k=length))
