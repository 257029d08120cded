"""The owner and the last batches of a table, which each kind of target records besides rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

NEVER = -1
"""Marker of a table that no batch was applied to."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a table's rows. The table records it from its first commit on; no other owner writes to it.

    :param shared: the table has rows of other topics of this connector, too
    :param changelog: identity of the change log whose batches they are; empty if it has no batch
    """

    connector: str
    topic: str
    shared: bool = False
    changelog: str = ""

    @property
    def recorded_owner(self) -> Owner:
        """The owner that the table records: one that several topics share belongs to none of them alone."""
        return Owner(self.connector, SHARED, changelog=self.changelog) if self.shared else self

    def is_but_for_its_log(self, other: Owner | None) -> bool:
        """Check whether another one is the same connector and topic, with another change log."""
        return other is not None and other != self and replace(other, changelog=self.changelog) == self

    @property
    def application_name(self) -> str:
        """The application name under which its batches are numbered.

        >>> Owner("shop", "shop.inventory.orders").application_name
        'cdc:shop:shop.inventory.orders'

        Numbers of batches mean nothing in another change log, so that each has a separate application.
        """
        log = f"@{self.changelog}" if self.changelog else ""
        # it is a session setting at times, and Spark looks for variables in the values of settings too, even if that is switched off
        return f"{APPS}{self.connector}:{self.topic}{log}".replace("${", "$%7B")

    def __str__(self) -> str:
        return f"connector {self.connector}, topic {self.topic}"


SHARED = "*"
"""Topic that a table records as its owner's when several topics share it."""
APPS = "cdc:"
"""Prefix of the application names."""


class ObservedProgress(NamedTuple):
    """The progress of a table when work on it was decided.

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
    :param writer: the run that has written it: in a change log that was put back to an earlier state, another one writes a batch of this number
    """

    owner: Owner
    batch: int
    writer: str = ""

    @property
    def application_name(self) -> str:
        return self.owner.application_name


def build_owner_properties(owner: Owner, names: Sequence[str]) -> dict[str, str]:
    """Return the properties by which a table names its owner.

    :param names: of the properties for the connector, the topic and the change log
    """
    recorded = owner.recorded_owner
    return dict(zip(names, (recorded.connector, recorded.topic, recorded.changelog), strict=True))


def owner_of(properties: Mapping[str, str], names: Sequence[str]) -> Owner | None:
    """Parse the owner from properties; ``None`` if there is no owner."""
    connector, topic, changelog = (properties.get(name) for name in names)
    if connector is None or topic is None or changelog is None:
        return None
    return Owner(connector, topic, changelog=changelog)
