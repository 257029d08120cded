"""The demonstration on the Oracle test server."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from dev.demonstration.kit import CUSTOMERS, NAMES, ORDERS, PRODUCTS, Kit
from dev.servers import Oracle

OWNER, PASSWORD = "INVENTORY", "inventory"
LONG_NOTE = 6_000
"""Characters. Oracle keeps a CLOB of this size outside of the row, and logs it apart from the row's change."""

_SCHEMA = (
    """CREATE TABLE customers (
        id NUMBER(9) PRIMARY KEY, first_name VARCHAR2(40 CHAR) NOT NULL, last_name VARCHAR2(40 CHAR) NOT NULL,
        email VARCHAR2(120) NOT NULL UNIQUE, birthday DATE, balance NUMBER, preferences CLOB, photo RAW(64),
        created_at TIMESTAMP(3) DEFAULT SYSTIMESTAMP NOT NULL)""",
    """CREATE TABLE products (
        id NUMBER(9) PRIMARY KEY, name NVARCHAR2(80) NOT NULL, weight BINARY_DOUBLE, rating BINARY_FLOAT,
        price NUMBER(10,2) NOT NULL, kind CHAR(6) NOT NULL, in_stock NUMBER(1), description CLOB, picture BLOB)""",
    """CREATE TABLE orders (
        id NUMBER(18) PRIMARY KEY, customer NUMBER(9) NOT NULL, product NUMBER(9) NOT NULL, quantity NUMBER(4) NOT NULL,
        total NUMBER(12,2) NOT NULL, ordered_at TIMESTAMP(6) NOT NULL, promised_at TIMESTAMP(6) WITH TIME ZONE,
        takes INTERVAL DAY(3) TO SECOND(3), status VARCHAR2(8) DEFAULT 'open' NOT NULL, note VARCHAR2(80))""",
    *(f"ALTER TABLE {table} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS" for table in ("customers", "products", "orders")),
    "CREATE SEQUENCE order_ids START WITH 1",
)  # fmt: skip
_CUSTOMER = (
    "INSERT INTO customers (id, first_name, last_name, email, birthday, balance, preferences, photo)"
    " VALUES (:1, :2, :3, :4, :5, :6, :7, :8)"
)
_PRODUCT = "INSERT INTO products VALUES (:1, :2, :3, :4, :5, :6, :7, :8, :9)"
_ORDER = (
    "INSERT INTO orders (id, customer, product, quantity, total, ordered_at, promised_at, takes, note)"
    " VALUES (order_ids.NEXTVAL, :1, :2, :3, :4, TO_TIMESTAMP(:5, 'YYYY-MM-DD HH24:MI:SS.FF6'),"
    " TO_TIMESTAMP_TZ(:6, 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM'), :7, :8)"
)


class OracleKit(Kit):
    """The Oracle test server of ``dev.servers``, as a container database."""

    kind = "oracle"
    title = "the Oracle test server, on its own port and folder"
    note = (
        "The Oracle server is ours: a stand-in, modelled on public documentation, that the real oracledb driver talks to.\n"
        "Nothing here has run against an Oracle database. What is shown is the way from LogMiner rows to equal tables."
    )
    dag = "inventory_oracle_continuous"
    connector = "inventory_oracle"
    conn_id = "inventory_oracle"
    properties: ClassVar[Mapping[str, Any]] = {
        "table.include.list": rf"{OWNER}\.(CUSTOMERS|PRODUCTS|ORDERS)",
        "lob.enabled": True,
    }
    new_column = ("ALTER TABLE customers ADD (loyalty NUMBER(4) DEFAULT 7 NOT NULL)",)

    def __init__(self) -> None:
        self.server = Oracle()

    def version(self) -> str:
        with self.server.connect() as connection:
            return f"ours (it says it is {connection.version})"

    def connection(self) -> dict[str, Any]:
        s = self.server
        return {
            "conn_type": "cdc_oracle", "host": s.host, "port": s.port, "login": s.user, "password": s.password,
            "schema": s.database, "extra": {"database.pdb.name": s.pdb},
        }  # fmt: skip

    def secrets(self) -> dict[str, Any]:
        return {
            "database.hostname": self.server.host,
            "database.port": self.server.port,
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.dbname": self.server.database,
            "database.pdb.name": self.server.pdb,
        }

    def fill(self, chance: random.Random) -> None:
        self.server.admin("ALTER SYSTEM SET UNDO_RETENTION = 86400", dsn=self.server.dsn)
        self.server.admin(
            f"CREATE USER {OWNER} IDENTIFIED BY {PASSWORD} QUOTA UNLIMITED ON users",
            f"GRANT CREATE SESSION, CREATE TABLE, CREATE SEQUENCE TO {OWNER}",
        )
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in _SCHEMA:
                cursor.execute(statement)
            cursor.executemany(_CUSTOMER, [_customer(chance, i) for i in range(CUSTOMERS)])
            cursor.executemany(_PRODUCT, [_product(chance, i) for i in range(PRODUCTS)])
            cursor.executemany(_ORDER, [_order(chance) for _ in range(ORDERS)])
            connection.commit()

    def connect(self) -> Any:
        return self.server.connect(user=OWNER, password=PASSWORD)

    def switch_log(self) -> None:
        self.server.admin("ALTER SYSTEM SWITCH LOGFILE", dsn=self.server.dsn)

    def position(self, document: Mapping[str, Any]) -> str:
        return f"SCN {document.get('read_scn')}"

    def login(self) -> str:
        return f"{self.server.owner_dsn}   user {OWNER}, password {PASSWORD}"

    # what the application does

    def inserts(self, cursor: Any, chance: random.Random) -> None:
        cursor.execute(_ORDER, _order(chance))

    def updates(self, cursor: Any, chance: random.Random) -> None:
        table, size, change, *values = chance.choice(
            (
                ("orders", ORDERS, "status = DECODE(MOD(id, 3), 0, 'open', 1, 'paid', 'sent'), total = total + 0.01"),
                ("customers", CUSTOMERS, "last_name = SUBSTR(last_name, 1, 20) || '-' || MOD(id, 7), preferences = NULL"),
                ("customers", CUSTOMERS, "balance = balance * 1.0625"),
                ("products", PRODUCTS, "price = price + 0.05, in_stock = 1 - in_stock"),
                ("products", PRODUCTS, "description = :1", _text(chance)),
            )
        )  # fmt: skip
        cursor.execute(f"UPDATE {table} SET {change} WHERE id = :{len(values) + 1}", [*values, chance.randint(1, size)])

    def deletes(self, cursor: Any, chance: random.Random) -> None:
        cursor.execute("DELETE FROM orders WHERE id = :1", [chance.randint(1, ORDERS)])

    def key_changes(self, cursor: Any, chance: random.Random) -> None:
        from oracledb import IntegrityError

        old = chance.randrange(PRODUCTS)
        for change in ((old + PRODUCTS, old), (old - PRODUCTS // 2, old + PRODUCTS // 2)):
            with contextlib.suppress(IntegrityError):  # the number is taken: Oracle undoes the statement alone
                cursor.execute("UPDATE products SET id = :1 WHERE id = :2", change)


def _customer(chance: random.Random, number: int) -> tuple[Any, ...]:
    birthday = datetime(chance.randint(1930, 2008), chance.randint(1, 12), chance.randint(1, 28))
    preferences = f'{{"newsletter": {chance.choice(("true", "false"))}, "size": {chance.randint(34, 48)}}}'
    names = chance.choice(NAMES), chance.choice(NAMES)
    balance = chance.choice((None, chance.randint(-5_000, 5_000), chance.randint(1, 10_000_000) / 64))
    return number, *names, f"c{number}@example.com", birthday, balance, preferences, chance.randbytes(8)


def _product(chance: random.Random, number: int) -> tuple[Any, ...]:
    kind = chance.choice(("tool", "toy", "book"))
    price = chance.randint(100, 99_999) / 100
    weight, rating = chance.random() * 50, round(chance.random() * 5, 1)
    picture = chance.choice((None, chance.randbytes(100)))
    return number, f"{kind} № {number}", weight, rating, price, kind, 1, _text(chance), picture


def _order(chance: random.Random) -> tuple[Any, ...]:
    at = f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02} 10:11:12.{chance.randint(0, 999_999):06}"
    promised = chance.choice((None, f"{at} +00:00", f"{at} -05:30"))
    takes = chance.choice((None, timedelta(minutes=chance.randint(1, 20_000))))
    note = chance.choice((None, "ring twice", "leave at the door ✉"))
    total = chance.randint(100, 999_999) / 100
    who, what = chance.randint(1, CUSTOMERS), chance.randrange(PRODUCTS)
    return who, what, chance.randint(1, 9), total, at, promised, takes, note


def _text(chance: random.Random) -> str | None:
    """A CLOB: none, a short one, one that does not fit into the row."""
    return chance.choice((None, "it's “good” ✓", "long " * (LONG_NOTE // 5) + str(chance.random())))
