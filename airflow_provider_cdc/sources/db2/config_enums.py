"""Types of the values of the Db2 source's properties."""

from __future__ import annotations

import enum
from typing import Final

NOT_LOGGED: Final = frozenset(
    {"CLOB", "DBCLOB", "BLOB", "XML", "LONG VARCHAR", "LONG VARGRAPHIC", "LONG VARCHAR FOR BIT DATA"}
)
"""Column types whose values are read from the table: in change tables the agent writes an indicator, nothing, or, in some versions, the value."""


class IsolationMode(enum.StrEnum):
    """Ways in which a snapshot keeps rows from changing while it reads them (Debezium Db2 connector, ``snapshot.isolation.mode``)."""

    EXCLUSIVE = "exclusive"
    REPEATABLE_READ = "repeatable_read"
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class LobHandling(enum.StrEnum):
    """Treatment of LOBs in the stream, as change tables have no values of them."""

    RESELECT = "reselect"
    UNAVAILABLE = "unavailable"


class Authentication(enum.StrEnum):
    """Ways to send user and password: the values of the CLI keyword ``Authentication`` that need nothing but these two."""

    SERVER = "server"
    SERVER_ENCRYPT = "server_encrypt"
    DATA_ENCRYPT = "data_encrypt"


class Db2SslMode(enum.StrEnum):
    DISABLED = "disabled"
    REQUIRED = "required"
