"""Statements whose first words say enough: they concern no captured table at all.

The lists are closed. A statement that is on none of them is not understood.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor

_IGNORED = frozenset((
    "GRANT", "REVOKE", "AUDIT", "NOAUDIT", "ANALYZE", "PURGE", "ASSOCIATE", "DISASSOCIATE", "EXPLAIN", "LOCK", "SET",
    "ADMINISTER",
))  # fmt: skip
_OBJECTS = frozenset((
    "VIEW", "SEQUENCE", "TRIGGER", "PROCEDURE", "FUNCTION", "PACKAGE", "TYPE", "ROLE", "PROFILE", "SYNONYM", "PUBLIC", "DATABASE",
    "PLUGGABLE", "TABLESPACE", "BIGFILE", "SMALLFILE", "TEMPORARY", "LOCAL", "UNDO", "MATERIALIZED", "SNAPSHOT", "DIRECTORY",
    "LIBRARY", "JAVA", "CONTEXT", "DIMENSION", "OPERATOR", "INDEXTYPE", "OUTLINE", "CLUSTER", "SHARED", "RESTORE", "ROLLBACK",
    "CONTROLFILE", "SPFILE", "PFILE", "DISKGROUP", "EDITION", "AUDIT", "FLASHBACK", "LOCKDOWN", "ATTRIBUTE", "HIERARCHY",
    "ANALYTIC", "INMEMORY", "SYSTEM", "SESSION", "RESOURCE", "PROPERTY", "DOMAIN", "USECASE", "MLE", "LOGICAL", "USER", "SEARCH",
    "VECTOR", "HYBRID", "CLEAN",
))  # fmt: skip
_PREFIXES = (
    ("OR", "REPLACE"), ("AND", "RESOLVE"), ("AND", "COMPILE"), ("NO", "FORCE"), ("NOFORCE",), ("FORCE",), ("EDITIONABLE",),
    ("NONEDITIONABLE",), ("EDITIONING",), ("JSON", "RELATIONAL", "DUALITY"),
)  # fmt: skip
_WITH_TABLES = frozenset(("CLUSTER", "TABLESPACE", "USER", "MATERIALIZED"))
"""Objects whose end may be that of tables."""


def ignored_kind(cursor: DdlCursor) -> str:
    """Return the effect of a statement that concerns no table, or an empty string.

    The cursor stays where it was.
    """
    key = cursor.next_key
    if key not in ("CREATE", "ALTER", "DROP"):
        return key.lower() if key in _IGNORED else ""
    mark = cursor.mark()
    cursor.consume_token()
    cursor.accept("IF", "EXISTS")
    while any(cursor.accept(*prefix) for prefix in _PREFIXES):
        pass
    name = cursor.next_key
    cursor.reset(mark)
    if name not in _OBJECTS or (key == "DROP" and name in _WITH_TABLES):
        return ""
    return f"{key} {name}".lower()
