"""DDL of MySQL and MariaDB, read token by token: which tables a statement concerns and how it changes them.

    >>> create, = parse_statements("CREATE TABLE t (id INT PRIMARY KEY, tag ENUM('a','b')) CHARSET=latin1")
    >>> [(c.name, c.type) for c in create.columns], create.primary_key
    ([('id', 'int'), ('tag', 'enum')], ('id',))

:func:`parse_statements` is the door; the classes that it returns are in :mod:`.statements`, :mod:`.alter_table_model` and :mod:`.parsed_columns`, and where they are the same in every
relational database in :mod:`airflow_provider_cdc.sources.relational.ddl_statements`. The grammar, over tokens, is in :mod:`.grammar`. Nothing
of this source is imported here but DDL itself.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import (
    Action,
    AddColumn,
    AddKey,
    AddPeriod,
    ChangeColumn,
    ConvertCharset,
    DropColumn,
    DropKey,
    PartitionToTable,
    RenameColumn,
    RenameIndex,
    SetDefault,
    SystemVersioning,
    TableCharset,
    TableComment,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.charset_rules import convert_charset, resolve_charset
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.default_clauses import string_value, typed_default
from airflow_provider_cdc.sources.mysql.schema.ddl.implied_timestamps import (
    with_implied_timestamp,
    with_implied_timestamps,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef, MySqlColumnDefault
from airflow_provider_cdc.sources.mysql.schema.ddl.statement_parser import (
    parse_statements,
    parse_type,
    sql_mode_options,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateIndex,
    CreateTable,
    DmlStatement,
    DropDatabase,
    DropIndex,
    DropTable,
    RenameTable,
    RepairTable,
    Statement,
    TransactionControl,
    TruncateTable,
    tables_of,
)
from airflow_provider_cdc.sources.relational.ddl_statements import (
    IgnoredStatement,
    NoColumnChange,
    PartitionDataChange,
    QualifiedName,
    RenameTo,
    UnknownStatement,
)

__all__ = [
    "Action",
    "AddColumn",
    "AddKey",
    "AddPeriod",
    "AlterDatabase",
    "AlterTable",
    "ChangeColumn",
    "ColumnDef",
    "ConvertCharset",
    "CreateDatabase",
    "CreateIndex",
    "CreateTable",
    "DmlStatement",
    "DropColumn",
    "DropDatabase",
    "DropIndex",
    "DropKey",
    "DropTable",
    "IgnoredStatement",
    "MySqlColumnDefault",
    "NoColumnChange",
    "PartitionDataChange",
    "PartitionToTable",
    "QualifiedName",
    "RenameColumn",
    "RenameIndex",
    "RenameTable",
    "RenameTo",
    "RepairTable",
    "SetDefault",
    "Statement",
    "SystemVersioning",
    "TableCharset",
    "TableComment",
    "TransactionControl",
    "TruncateTable",
    "UnknownStatement",
    "convert_charset",
    "parse_statements",
    "parse_type",
    "resolve_charset",
    "sql_mode_options",
    "string_value",
    "tables_of",
    "typed_default",
    "with_implied_timestamp",
    "with_implied_timestamps",
]
