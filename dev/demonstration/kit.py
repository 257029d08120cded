"""The facts about a kind of source that the demonstration needs; everything else is the same for all kinds."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

CUSTOMERS, PRODUCTS, ORDERS = 2_000, 400, 5_000
"""Rows that each of the three tables has at first."""
NAMES = ("Zoë", "Łukasz", "Anne-Marie", "李", "Søren", "Nadia", "Олег", "Inés", "Kwame", "Ann")


class Kit(ABC):
    """A source: its server, its ``inventory`` tables, the SQL of the application, and the address for the capture.

    :cvar kind: kind of source, as connector definitions spell it
    :cvar title: what is started
    :cvar note: what a reader of the result must know about the server; empty for a real one
    :cvar dag: example DAG
    :cvar connector: the connector's name in it
    :cvar conn_id: its connection to the source
    :cvar properties: of a second connector for the same tables
    :cvar change: what is done to the structure meanwhile, for people
    :cvar new_column: the statements that do it, as a rule another column of a table
    :cvar savepoint: the statement that makes a savepoint; empty where there are none
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    note: ClassVar[str] = ""
    dag: ClassVar[str]
    connector: ClassVar[str]
    conn_id: ClassVar[str]
    properties: ClassVar[Mapping[str, Any]]
    change: ClassVar[str] = "adds a column"
    new_column: ClassVar[tuple[str, ...]]
    savepoint: ClassVar[str] = "SAVEPOINT before_second_thoughts"

    server: Any
    """One of ``dev.servers``, not started yet."""

    @abstractmethod
    def version(self) -> str:
        """Return the version of the running server."""

    def place(self) -> str:
        """Return the place at which the server listens."""
        return f"port {self.server.port}"

    @abstractmethod
    def connection(self) -> dict[str, Any]:
        """Fields of the Airflow connection of the capture user."""

    @abstractmethod
    def secrets(self) -> dict[str, Any]:
        """The same as properties."""

    @abstractmethod
    def fill(self, chance: random.Random) -> None:
        """Create the tables with their first rows."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection of the application, without autocommit."""

    @abstractmethod
    def switch_log(self) -> None:
        """Have the server begin a new log file, or whatever else the capture has to get over."""

    def begins_again(self, error: BaseException) -> bool:
        """Check whether the application begins a transaction again that ended with this error."""
        return False

    @abstractmethod
    def position(self, document: Mapping[str, Any]) -> str:
        """A position for people."""

    @abstractmethod
    def login(self) -> str:
        """Return the address and account with which a person logs in, for ``--keep``."""

    # one change of the application each, on an open transaction

    @abstractmethod
    def inserts(self, cursor: Any, chance: random.Random) -> None:
        """A new order."""

    @abstractmethod
    def updates(self, cursor: Any, chance: random.Random) -> None:
        """Update rows of any table."""

    @abstractmethod
    def deletes(self, cursor: Any, chance: random.Random) -> None:
        """Delete an order."""

    @abstractmethod
    def key_changes(self, cursor: Any, chance: random.Random) -> None:
        """A product gets another number; one that was taken before is taken again."""
