"""Types of the values of the PostgreSQL source's properties."""

from __future__ import annotations

import enum


class PublicationMode(enum.StrEnum):
    """Ways to create a publication that does not exist (Debezium PostgreSQL connector, ``publication.autocreate.mode``)."""

    ALL_TABLES = "all_tables"
    FILTERED = "filtered"
    NO_TABLES = "no_tables"
    DISABLED = "disabled"


class LockingMode(enum.StrEnum):
    """Ways to keep statements from altering tables while a snapshot reads them."""

    NONE = "none"
    SHARED = "shared"
    CUSTOM = "custom"


class SslMode(enum.StrEnum):
    """The values of libpq's ``sslmode``."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


class HstoreHandling(enum.StrEnum):
    """Forms of ``hstore`` values in the Debezium JSON form; the change log has JSON texts."""

    JSON = "json"
    MAP = "map"


class IntervalHandling(enum.StrEnum):
    NUMERIC = "numeric"
    STRING = "string"
