"""DDL of MySQL and MariaDB, read token by token: which tables a statement concerns and what it does to them.

    >>> create, = read("CREATE TABLE t (id INT PRIMARY KEY, tag ENUM('a','b')) CHARSET=latin1")
    >>> [(c.name, c.type) for c in create.columns], create.primary_key
    ([('id', 'int'), ('tag', 'enum')], ('id',))

:func:`read` is the door; what it returns is in :mod:`.statements`, :mod:`.actions` and :mod:`.columns`, and where it is the same in every
relational database in :mod:`airflow_provider_cdc.sources.relational.ddl_statements`. The grammar, over tokens, is in :mod:`.grammar`. Nothing
of this source is imported here but DDL itself.
"""

from __future__ import annotations

from airflow_provider_cdc.sources.mysql.schema.ddl.actions import (
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
from airflow_provider_cdc.sources.mysql.schema.ddl.charsets import convert, resolve
from airflow_provider_cdc.sources.mysql.schema.ddl.columns import ColumnDef, Default
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.literals import string_value, typed_default
from airflow_provider_cdc.sources.mysql.schema.ddl.reader import parse_type, read, sql_mode_options
from airflow_provider_cdc.sources.mysql.schema.ddl.statements import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateIndex,
    CreateTable,
    Dml,
    DropDatabase,
    DropIndex,
    DropTable,
    RenameTable,
    RepairTable,
    Statement,
    Transaction,
    TruncateTable,
    tables_of,
)
from airflow_provider_cdc.sources.mysql.schema.ddl.timestamps import with_implied_timestamp, with_implied_timestamps
from airflow_provider_cdc.sources.relational.ddl_statements import (
    Ignored,
    Name,
    NoColumnChange,
    PartitionData,
    RenameTo,
    Unknown,
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
    "Default",
    "Dml",
    "DropColumn",
    "DropDatabase",
    "DropIndex",
    "DropKey",
    "DropTable",
    "Ignored",
    "Name",
    "NoColumnChange",
    "PartitionData",
    "PartitionToTable",
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
    "Transaction",
    "TruncateTable",
    "Unknown",
    "convert",
    "parse_type",
    "read",
    "resolve",
    "sql_mode_options",
    "string_value",
    "tables_of",
    "typed_default",
    "with_implied_timestamp",
    "with_implied_timestamps",
]
