"""Defines whether rows of a table may have the same key for a while."""

from __future__ import annotations

from enum import Enum


class KeysOverlap(Enum):
    """The places where rows may have the same key in the middle of a transaction.

    It depends on when a database makes sure that keys are unique.
    """

    NEVER = "never"
    NAMED_KEYS = "named keys"
    """Where ``message.key.columns`` names the key. Of its own keys the database makes sure with each row."""
    ALWAYS = "always"
    """The database makes sure at the end of a statement, or of the transaction."""
