"""Codes of the errors of a document that kernels refuse.

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
    LENGTH: "a length exceeds the end of its container",
    END: "an element does not end at its declared length",
    TYPE: "the BSON type number is unknown",
    BOOLEAN: "a boolean is neither 0 nor 1",
    UTF8: "a text or name is not valid UTF-8",
    DEPTH: "documents are nested more than 200 levels deep",
    TWICE: "a field occurs twice",
    OLD_BINARY: "a binary value of the old subtype 2 has two lengths that contradict each other",
    NEEDED: "a mandatory field is missing",
    UNEXPECTED: "a field has an invalid type",
}
"""Each in words."""
