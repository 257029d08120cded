"""DDL of Oracle, read token by token: which tables a statement concerns and what it does to them.

    >>> create = read("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, note VARCHAR2(50 CHAR) DEFAULT 'none')")
    >>> [(c.name, str(c.type.expression)) for c in create.columns], create.keys[0].columns
    ([('ID', 'NUMBER(10,0)'), ('NOTE', 'VARCHAR2(50)')], ('ID',))

:func:`read` is the door; what it returns is in :mod:`.statements`, :mod:`.actions` and :mod:`.columns`, and where it is the same in every
relational database in :mod:`airflow_provider_cdc.sources.relational.ddl_statements`. The grammar is in :mod:`.grammar`.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.actions import (
    LESS_LOGGED,
    Action,
    AddColumn,
    AddKey,
    DropColumn,
    KeysChanged,
    ModifyColumn,
    PartitionData,
    RenameColumn,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.columns import ColumnDef, Default, Key
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.expressions import read_default
from airflow_provider_cdc.sources.oracle.schema.ddl.reader import read
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import (
    AlterIndex,
    AlterTable,
    CreateIndex,
    CreateTable,
    DropIndex,
    DropTable,
    DropUser,
    FlashbackTable,
    Rename,
    Statement,
    TruncateCluster,
    TruncateTable,
    tables_of,
)
from airflow_provider_cdc.sources.relational.ddl_statements import Ignored, Name, NoColumnChange, RenameTo, Unknown

__all__ = [
    "LESS_LOGGED",
    "Action",
    "AddColumn",
    "AddKey",
    "AlterIndex",
    "AlterTable",
    "ColumnDef",
    "CreateIndex",
    "CreateTable",
    "Default",
    "DropColumn",
    "DropIndex",
    "DropTable",
    "DropUser",
    "FlashbackTable",
    "Ignored",
    "Key",
    "KeysChanged",
    "ModifyColumn",
    "Name",
    "NoColumnChange",
    "PartitionData",
    "Rename",
    "RenameColumn",
    "RenameTo",
    "Statement",
    "TruncateCluster",
    "TruncateTable",
    "Unknown",
    "read",
    "read_default",
    "tables_of",
]
