"""The array of messages that the splitter fills, and why it stops."""

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
