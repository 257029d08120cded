"""Codes of what is wrong with a document that kernels refuse.

The values never change: kernels have them in machine code that is kept on disk.
"""

from __future__ import annotations

from typing import Final

FINE: Final = 0
LENGTH: Final = -1
END: Final = -2
TYPE: Final = -3
BOOLEAN: Final = -4
UTF8: Final = -5
DEPTH: Final = -6
TWICE: Final = -7
UNEXPECTED: Final = -8
OLD_BINARY: Final = -10
NEEDED: Final = -11
FULL: Final = -9
"""Not a problem: the output is full."""

TEXTS: Final = {
    LENGTH: "a length goes past the end of what contains it",
    END: "something does not end where its length says",
    TYPE: "there is no BSON type with this number",
    BOOLEAN: "a boolean is neither 0 nor 1",
    UTF8: "a text or name is not UTF-8",
    DEPTH: "documents are nested more than 200 deep",
    TWICE: "a field is there twice",
    OLD_BINARY: "a binary value of the old subtype 2 has two lengths that contradict each other",
    NEEDED: "a field is not there that always is",
    UNEXPECTED: "a field has a type that it cannot have",
}
"""Each in words."""
