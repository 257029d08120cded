"""Defines whether rows of a table may have the same key for a while."""

from __future__ import annotations

from enum import Enum


class KeysOverlap(Enum):
    """The places where rows may have the same key in the middle of a transaction.

    It depends on when a database checks that keys are unique.
    """

    NEVER = "never"
    NAMED_KEYS = "named keys"
    """Where ``message.key.columns`` names the key. The database checks its own keys with each row."""
    ALWAYS = "always"
    """The database checks keys at the end of a statement, or of the transaction."""
