"""The demonstration on MariaDB."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

from dev.demonstration.kit import CUSTOMERS, NAMES, ORDERS, PRODUCTS, Kit
from dev.servers import MariaDb

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
_CUSTOMER = (
    "INSERT INTO customers (first_name, last_name, email, birthday, preferences, photo) VALUES (%s, %s, %s, %s, %s, %s)"
)
_PRODUCT = "INSERT INTO products VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_ORDER = "INSERT INTO orders (customer, product, quantity, total, ordered_at, deliver_at, note) VALUES (%s, %s, %s, %s, %s, %s, %s)"


class MariaDbKit(Kit):
    """A MariaDB with row binlog."""

    kind = "mariadb"
    title = "MariaDB with row binlog, on its own port and folder"
    dag = "inventory_mariadb_continuous"
    connector = "inventory"
    conn_id = "inventory_mariadb"
    properties: ClassVar[Mapping[str, Any]] = {
        "database.server.id": 223_355,
        "table.include.list": r"inventory\.(customers|products|orders)",
    }
    new_column = ("ALTER TABLE customers ADD COLUMN loyalty INT NOT NULL DEFAULT 7 AFTER last_name",)

    def __init__(self) -> None:
        self.server = MariaDb()

    def version(self) -> str:
        return str(self.server.version)

    def connection(self) -> dict[str, Any]:
        s = self.server
        plain = {"database.ssl.mode": "disabled"}  # the server is on this machine, and has no certificate
        login = {"host": s.host, "port": s.port, "login": s.user, "password": s.password}
        return {"conn_type": "cdc_mariadb", **login, "extra": plain}

    def secrets(self) -> dict[str, Any]:
        return {
            "database.hostname": self.server.host,
            "database.port": self.server.port,
            "database.user": self.server.user,
            "database.password": self.server.password,
        }

    def fill(self, chance: random.Random) -> None:
        self.server.sql(*_SCHEMA)
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.executemany(_CUSTOMER, [_customer(chance, i) for i in range(CUSTOMERS)])
            cursor.executemany(_PRODUCT, [_product(chance, i) for i in range(PRODUCTS)])
            cursor.executemany(_ORDER, [_order(chance) for _ in range(ORDERS)])
            connection.commit()

    def connect(self) -> Any:
        return self.server.connect(database="inventory", autocommit=False)

    def switch_log(self) -> None:
        self.server.sql("FLUSH BINARY LOGS")

    def position(self, document: Mapping[str, Any]) -> str:
        return f"{document.get('file')}:{document.get('pos')} (GTID {document.get('gtids')})"

    def login(self) -> str:
        return f"{self.server.host}:{self.server.port}   user admin, password admin"

    # what the application does

    def inserts(self, cursor: Any, chance: random.Random) -> None:
        cursor.execute(_ORDER, _order(chance))

    def updates(self, cursor: Any, chance: random.Random) -> None:
        table, size, change = chance.choice(
            (
                ("orders", ORDERS, "status = ELT(1 + MOD(id, 3), 'open', 'paid', 'sent'), total = total + 0.01"),
                ("customers", CUSTOMERS, "last_name = CONCAT(LEFT(last_name, 20), '-', MOD(id, 7)), preferences = NULL"),
                ("products", PRODUCTS, "price = price * 1.01, in_stock = NOT in_stock"),
            )
        )  # fmt: skip
        cursor.execute(f"UPDATE {table} SET {change} WHERE id = %s", (chance.randint(1, size),))

    def deletes(self, cursor: Any, chance: random.Random) -> None:
        cursor.execute("DELETE FROM orders WHERE id = %s", (chance.randint(1, ORDERS),))

    def key_changes(self, cursor: Any, chance: random.Random) -> None:
        old = chance.randrange(PRODUCTS)
        cursor.execute("UPDATE IGNORE products SET id = id + %s WHERE id = %s", (PRODUCTS, old))
        cursor.execute("UPDATE IGNORE products SET id = id - %s WHERE id = %s", (PRODUCTS, old + PRODUCTS // 2))


def _customer(chance: random.Random, number: int) -> tuple[Any, ...]:
    birthday = f"{chance.randint(1930, 2008)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    preferences = f'{{"newsletter": {chance.choice(("true", "false"))}, "size": {chance.randint(34, 48)}}}'
    name = chance.choice(NAMES)
    return name, chance.choice(NAMES), f"c{number}@example.com", birthday, preferences, chance.randbytes(8)


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
