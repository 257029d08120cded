"""The ``inventory`` database of the demonstration, and the application that works in it meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

CUSTOMERS, PRODUCTS, ORDERS = 2_000, 400, 5_000
TABLES = ("customers", "products", "orders")

_SCHEMA = (
    "CREATE DATABASE inventory",
    """CREATE TABLE inventory.customers (
        id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, first_name VARCHAR(40) NOT NULL, last_name VARCHAR(40) NOT NULL,
        email VARCHAR(120) NOT NULL UNIQUE, birthday DATE, preferences JSON, photo VARBINARY(64),
        created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3))""",
    """CREATE TABLE inventory.products (
        id INT PRIMARY KEY, name VARCHAR(80) CHARACTER SET latin1 NOT NULL, weight DOUBLE, rating FLOAT,
        price DECIMAL(10,2) NOT NULL, kind ENUM('tool','toy','book') NOT NULL, labels SET('new','sale','heavy'), in_stock BOOLEAN)""",
    """CREATE TABLE inventory.orders (
        id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT UNSIGNED NOT NULL, product INT NOT NULL,
        quantity SMALLINT UNSIGNED NOT NULL, total DECIMAL(12,2) NOT NULL, ordered_at DATETIME(6) NOT NULL, deliver_at TIME,
        status ENUM('open','paid','sent') NOT NULL DEFAULT 'open', note TEXT)""",
)  # fmt: skip
_NAMES = ("Zoë", "Łukasz", "Anne-Marie", "李", "Søren", "Nadia", "Олег", "Inés", "Kwame", "Ann")


def fill(server: Any) -> None:
    """Create the tables and a few thousand rows, the same ones every time."""
    chance = random.Random(1)
    server.sql(*_SCHEMA)
    with server.connect(database="inventory", autocommit=False) as connection, connection.cursor() as cursor:
        cursor.executemany(_CUSTOMER, [_customer(chance, i) for i in range(CUSTOMERS)])
        cursor.executemany(_PRODUCT, [_product(chance, i) for i in range(PRODUCTS)])
        cursor.executemany(_ORDER, [_order(chance) for _ in range(ORDERS)])
        connection.commit()


_CUSTOMER = (
    "INSERT INTO customers (first_name, last_name, email, birthday, preferences, photo) VALUES (%s, %s, %s, %s, %s, %s)"
)
_PRODUCT = "INSERT INTO products VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_ORDER = "INSERT INTO orders (customer, product, quantity, total, ordered_at, deliver_at, note) VALUES (%s, %s, %s, %s, %s, %s, %s)"


def _customer(chance: random.Random, number: int) -> tuple[Any, ...]:
    birthday = f"{chance.randint(1930, 2008)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    preferences = f'{{"newsletter": {chance.choice(("true", "false"))}, "size": {chance.randint(34, 48)}}}'
    name = chance.choice(_NAMES)
    return name, chance.choice(_NAMES), f"c{number}@example.com", birthday, preferences, chance.randbytes(8)


def _product(chance: random.Random, number: int) -> tuple[Any, ...]:
    kind = chance.choice(("tool", "toy", "book"))
    labels = ",".join(chance.sample(("new", "sale", "heavy"), chance.randint(0, 3)))
    price = f"{chance.randint(100, 99_999) / 100:.2f}"
    return number, f"{kind} n° {number}", chance.random() * 50, round(chance.random() * 5, 1), price, kind, labels, 1


def _order(chance: random.Random) -> tuple[Any, ...]:
    at = f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02} 10:11:12.{chance.randint(0, 999_999):06}"
    deliver = chance.choice((None, f"{chance.randint(0, 200)}:{chance.randint(0, 59):02}:00"))
    note = chance.choice((None, "ring twice", "leave at the door ✉"))
    total = f"{chance.randint(100, 999_999) / 100:.2f}"
    return chance.randint(1, CUSTOMERS), chance.randrange(PRODUCTS), chance.randint(1, 9), total, at, deliver, note


class LiveWriter:
    """An application that does not stop for capture: a transaction every few milliseconds. A context manager.

    :ivar done: what it did → how often
    """

    def __init__(self, server: Any, pause_s: float = 0.02) -> None:
        self._server, self._pause_s = server, pause_s
        self._chance = random.Random(2)
        self._stop = threading.Event()
        self._wanted: list[str] = []
        self._thread = threading.Thread(target=self._work, name="live-writer", daemon=True)
        self._error: BaseException | None = None
        self.done: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End after the transaction that is going on.

        :raises BaseException: whatever ended the writer before
        """
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def change_schema(self, statement: str) -> None:
        """Have it run a DDL statement between two transactions."""
        self._wanted.append(statement)

    def _work(self) -> None:
        try:
            with (
                self._server.connect(database="inventory", autocommit=False) as connection,
                connection.cursor() as cursor,
            ):
                while not self._stop.is_set():
                    if self._wanted:
                        cursor.execute(self._wanted.pop(0))
                        self.done["schema changes"] += 1
                    self._transaction(connection, cursor)
                    time.sleep(self._pause_s)
        except BaseException as e:  # raised by stop()
            self._error = e

    def _transaction(self, connection: Any, cursor: Any) -> None:
        chance, did = self._chance, Counter[str]()
        for _ in range(chance.choice((1, 1, 2, 5))):
            what = chance.choices(("inserts", "updates", "deletes", "key changes"), (5, 6, 2, 1))[0]
            getattr(self, f"_{what.replace(' ', '_')}")(cursor)
            did[what] += 1
        if chance.random() < 0.05:
            connection.rollback()
            self.done["rolled back"] += 1
        else:
            connection.commit()
            self.done["transactions"] += 1
            self.done += did

    def _inserts(self, cursor: Any) -> None:
        cursor.execute(_ORDER, _order(self._chance))

    def _updates(self, cursor: Any) -> None:
        table, change = self._chance.choice(
            (
                ("orders", "status = ELT(1 + MOD(id, 3), 'open', 'paid', 'sent'), total = total + 0.01"),
                ("customers", "last_name = CONCAT(LEFT(last_name, 20), '-', MOD(id, 7)), preferences = NULL"),
                ("products", "price = price * 1.01, in_stock = NOT in_stock"),
            )
        )
        size = {"orders": ORDERS, "customers": CUSTOMERS, "products": PRODUCTS}[table]
        cursor.execute(f"UPDATE {table} SET {change} WHERE id = %s", (self._chance.randint(1, size),))

    def _deletes(self, cursor: Any) -> None:
        cursor.execute("DELETE FROM orders WHERE id = %s", (self._chance.randint(1, ORDERS),))

    def _key_changes(self, cursor: Any) -> None:
        """A product gets another number; one that was taken before is taken again."""
        old = self._chance.randrange(PRODUCTS)
        cursor.execute("UPDATE IGNORE products SET id = id + %s WHERE id = %s", (PRODUCTS, old))
        cursor.execute("UPDATE IGNORE products SET id = id - %s WHERE id = %s", (PRODUCTS, old + PRODUCTS // 2))
