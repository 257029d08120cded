"""Whose a table is, and how far it is: what each kind of target records besides rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NEVER = -1
"""Marker of a table that no batch was applied to."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a table's rows. The table records it from its first commit on; no other owner writes to it.

    :param shared: the table has rows of other topics of this connector, too
    """

    connector: str
    topic: str
    shared: bool = False

    @property
    def recorded(self) -> Owner:
        """What the table records: one that several topics share belongs to none of them alone."""
        return Owner(self.connector, SHARED) if self.shared else self

    @property
    def app(self) -> str:
        """The application name under which its batches are numbered.

        >>> Owner("shop", "shop.inventory.orders").app
        'cdc:shop:shop.inventory.orders'
        """
        # it is a session setting at times, and Spark looks for variables in the values of settings too, whoever forbids it
        return f"{APPS}{self.connector}:{self.topic}".replace("${", "$%7B")

    def __str__(self) -> str:
        return f"connector {self.connector}, topic {self.topic}"


SHARED = "*"
"""Topic that a table records as its owner's when several topics share it."""
APPS = "cdc:"
"""Prefix of the application names."""


class Stand(NamedTuple):
    """How far a table was when work on it was decided.

    :param app: whose batches and schema versions are meant
    :param batch: the last one applied, :data:`NEVER` if none
    :param version: the schema version of its columns
    """

    app: str
    batch: int
    version: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of a table. It is written in the same commit as the data.

    :param batch: the last batch that is applied
    """

    owner: Owner
    batch: int

    @property
    def app(self) -> str:
        return self.owner.app
