"""The arrays that the kernels fill, and why they stop."""

from typing import Final

MSG_KIND: Final = 0
"""First byte of a pgoutput message, such as ``I``."""
MSG_START: Final = 1
"""Offset of the byte behind it."""
MSG_END: Final = 2
"""Offset behind its last byte."""
MSG_LSN: Final = 3
"""LSN of the change."""
MSG_FIELDS: Final = 4

NEED_BYTES: Final = 0
"""The bytes end within a message."""
MESSAGES_FULL: Final = 1
"""The array has no room left."""
KEEPALIVE: Final = 2
"""The next message is a keepalive of the server."""
OTHER_MESSAGE: Final = 3
"""The next message carries no part of the log: an error, a notice, the end of the stream."""
BAD_MESSAGE: Final = 4
"""The next message is not as the protocol has it."""

ROW_RELATION: Final = 0
"""Index of the row's relation among the known ones."""
ROW_OPERATION: Final = 1
"""Code of :mod:`~airflow_provider_cdc.core.model.log_items`."""
ROW_START: Final = 2
"""Offset of the row's images."""
ROW_END: Final = 3
"""Offset behind them."""
ROW_LSN: Final = 4
"""LSN of the change."""
ROW_TRANSACTION: Final = 5
"""Index of the row's transaction."""
ROW_FIELDS: Final = 6

TX_ID: Final = 0
"""Number of the transaction (``xid``)."""
TX_TIME: Final = 1
"""When it was committed, microseconds since 2000."""
TX_COMMIT: Final = 2
"""LSN of its commit."""
TX_END: Final = 3
"""LSN behind its commit; 0 = its commit has not come yet."""
TX_FIELDS: Final = 4

ALL_ROUTED: Final = 0
"""No message is left."""
NOT_A_ROW: Final = 1
"""The next message is none of a row, a beginning or a commit."""
UNKNOWN_RELATION: Final = 2
"""The next message is of a relation that is not among the known ones."""
BAD_ORDER: Final = 3
"""The next message is outside a transaction, or begins one within another."""
CUT_SHORT: Final = 4
"""The next message ends before its fields do."""

NULL_VALUE: Final = ord("n")
UNCHANGED_VALUE: Final = ord("u")
"""A value that is stored beside the row, and was not changed, so that the log does not have it (TOAST)."""
TEXT_VALUE: Final = ord("t")
BINARY_VALUE: Final = ord("b")
NO_IMAGE: Final = 0
"""The row has no such image."""
NOT_LOGGED: Final = 1
"""The image has the columns of the replica identity alone, and this is none of them."""
