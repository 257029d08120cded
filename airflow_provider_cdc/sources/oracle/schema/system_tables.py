"""Tables that are never captured, whatever the lists say: Oracle's own, and this connector's flush table."""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig

SYSTEM_SCHEMAS: Final = frozenset(
    [
        "APPQOSSYS", "AUDSYS", "CTXSYS", "DVSYS", "DBSFWUSER", "DBSNMP", "QSMADMIN_INTERNAL", "LBACSYS", "MDSYS", "OJVMSYS",
        "OLAPSYS", "ORDDATA", "ORDSYS", "OUTLN", "SYS", "SYSTEM", "WMSYS", "XDB", "ANONYMOUS", "DIP", "DVF", "EXFSYS",
        "FLOWS_FILES", "GGSHAREDCAP", "GGSYS", "GSMADMIN_INTERNAL", "GSMCATUSER", "GSMROOTUSER", "GSMUSER", "MDDATA",
        "ORACLE_OCM", "ORDPLUGINS", "REMOTE_SCHEDULER_AGENT", "SI_INFORMTN_SCHEMA", "SYS$UMF", "SYSBACKUP", "SYSDG", "SYSKM",
        "SYSMAN", "SYSRAC", "XS$NULL", "APEX_PUBLIC_USER",
    ]
)  # fmt: skip
"""Schemas of the documents' list, and others that Oracle's manuals list as its own."""

_SYSTEM_TABLE = re.compile(
    r"CMP[34]\$\d+|SYS_IOT_OVER_.*|MDR[TS]_.*|MDXT_.*|BIN\$.*|MLOG\$_.*|RUPD\$_.*|DR\$.*|AQ\$_.*|SYS_FBA_.*"
)
LIKELY_NAMES = re.compile(r"CMP[34]\$\d+|SYS_IOT_OVER_.*|MDR[TS]_.*|MDXT_.*")
"""Those of them that a user's table may have by chance."""
_APEX = re.compile(r"APEX_\d{6}")


def is_system(table: TableId, config: OracleConfig) -> bool:
    """Check whether a table is never captured, whatever the lists say.

    These are Oracle's own tables, and this connector's flush table.
    """
    owner, name = table.namespace.upper(), table.name.upper()
    if owner == config.database_user.upper() and name == config.log_mining_flush_table_name.upper():
        return True
    return is_system_schema(owner) or bool(_SYSTEM_TABLE.fullmatch(name))


def is_system_schema(schema: str) -> bool:
    """Check whether a schema is Oracle's own."""
    return schema.upper() in SYSTEM_SCHEMAS or bool(_APEX.fullmatch(schema.upper()))
