"""DDL of Oracle, read token by token: which tables a statement concerns and how it changes them.

    >>> create = parse_ddl_statement("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, note VARCHAR2(50 CHAR) DEFAULT 'none')")
    >>> [(c.name, str(c.type.expression)) for c in create.columns], create.keys[0].columns
    ([('ID', 'NUMBER(10,0)'), ('NOTE', 'VARCHAR2(50)')], ('ID',))

:func:`parse_ddl_statement` is the door; the classes that it returns are in :mod:`.statements`, :mod:`.alter_table_model` and :mod:`.ddl_element_models`, and where they are the same in every
relational database in :mod:`airflow_provider_cdc.sources.relational.ddl_statements`. The grammar is in :mod:`.grammar`.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.oracle.schema.ddl.alter_table_model import (
    LESS_LOGGED,
    Action,
    AddColumn,
    AddKey,
    ChangePartitionData,
    DropColumn,
    KeysChanged,
    ModifyColumn,
    RenameColumn,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import (
    ColumnDefault,
    ColumnDefinition,
    KeyDefinition,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.expressions import read_default
from airflow_provider_cdc.sources.oracle.schema.ddl.statement_reader import parse_ddl_statement
from airflow_provider_cdc.sources.oracle.schema.ddl.statements import (
    AlterIndex,
    AlterTable,
    CommentOn,
    CreateIndex,
    CreateTable,
    DropIndex,
    DropTable,
    DropUser,
    FlashbackTable,
    RenameObject,
    Statement,
    TruncateCluster,
    TruncateTable,
    tables_of,
)
from airflow_provider_cdc.sources.relational.ddl_statements import (
    IgnoredStatement,
    NoColumnChange,
    QualifiedName,
    RenameTo,
    UnknownStatement,
)

__all__ = [
    "LESS_LOGGED",
    "Action",
    "AddColumn",
    "AddKey",
    "AlterIndex",
    "AlterTable",
    "ChangePartitionData",
    "ColumnDefault",
    "ColumnDefinition",
    "CommentOn",
    "CreateIndex",
    "CreateTable",
    "DropColumn",
    "DropIndex",
    "DropTable",
    "DropUser",
    "FlashbackTable",
    "IgnoredStatement",
    "KeyDefinition",
    "KeysChanged",
    "ModifyColumn",
    "NoColumnChange",
    "QualifiedName",
    "RenameColumn",
    "RenameObject",
    "RenameTo",
    "Statement",
    "TruncateCluster",
    "TruncateTable",
    "UnknownStatement",
    "parse_ddl_statement",
    "read_default",
    "tables_of",
]
