"""Marks of rows of ``V$LOGMNR_CONTENTS``: their operation codes, and the row id of no row.

(Oracle Database Reference, "V$LOGMNR_CONTENTS".) The values never change: kernels have them in machine code that is kept on disk.
"""

from __future__ import annotations

from typing import Final

INTERNAL: Final = 0
"""An internal operation, not a change; some mark the end of a change with several log rows."""
INSERT: Final = 1
DELETE: Final = 2
UPDATE: Final = 3
DDL: Final = 5
START: Final = 6
COMMIT: Final = 7
SELECT_LOB_LOCATOR: Final = 9
LOB_WRITE: Final = 10
LOB_TRIM: Final = 11
REPLICATION_MARKER: Final = 27
"""Written by Oracle GoldenGate; its transaction has a START and no end."""
LOB_ERASE: Final = 29
MISSING_SCN: Final = 34
ROLLBACK: Final = 36
XML_BEGIN: Final = 68
XML_WRITE: Final = 70
XML_END: Final = 71
STRING_BEGIN: Final = 91
STRING_WRITE: Final = 92
STRING_END: Final = 93
UNSUPPORTED: Final = 255
"""A change that LogMiner cannot show."""

LAST_CHANGE: Final = UPDATE
"""Codes up to this one, except ``INTERNAL``, are changes of rows."""
FIRST_PIECE: Final = SELECT_LOB_LOCATOR
"""Codes from this one on, in log rows of a table, are pieces of long values."""
LOB_CODES: Final = (SELECT_LOB_LOCATOR, LOB_WRITE, LOB_TRIM, LOB_ERASE)
XML_CODES: Final = (XML_BEGIN, XML_WRITE, XML_END)
STRING_CODES: Final = (STRING_BEGIN, STRING_WRITE, STRING_END)
"""Values of more than 4,000 bytes in columns that are not LOBs."""

NO_ROW_ID: Final = "AAAAAAAAAAAAAAAAAA"
"""``ROW_ID`` of log rows without a ROWID."""
NO_PLACE: Final = "AAAAAAAAAAAA"
"""The end of such a ``ROW_ID``, which may begin with the number of the object: file, block and row are zero (debezium/debezium#7425)."""
FOREVER: Final = 1 << 62
"""A number greater than any SCN; not from Oracle."""
