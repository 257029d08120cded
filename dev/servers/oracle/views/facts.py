"""The views of the database as a whole: its role and settings, its containers, and what the session may do."""

from collections.abc import Iterator
from typing import Any

from dev.servers.oracle.engine.privileges import ROLE_CONTENTS, ROLES, SYSTEM_PRIVILEGES
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.views.base import view

Row = dict[str, Any]
VERSION = "19.0.0.0.0"
FULL_VERSION = "19.3.0.0.0"
BANNER = "Oracle Database 19c Enterprise Edition Release 19.0.0.0.0 - Production"
CHARACTER_SETS = {"NLS_CHARACTERSET": "AL32UTF8", "NLS_NCHAR_CHARACTERSET": "AL16UTF16", "NLS_RDBMS_VERSION": VERSION}
PARAMETERS = {
    "undo_retention": "900", "compatible": "19.0.0", "db_block_size": "8192", "max_string_size": "EXTENDED", "open_cursors": "300",
    "enable_goldengate_replication": "FALSE", "db_recovery_file_dest_size": "10737418240", "log_archive_start": "TRUE",
}  # fmt: skip


def _database(session: Session) -> Iterator[Row]:
    engine, database = session.engine, session.database
    facts = engine.catalog.facts
    supplemental = facts.supplemental | (set() if database.settings.autonomous else _local_logging(session))

    def supplemental_flag(kind: str) -> str:
        return "YES" if kind in supplemental else "NO"

    minimal = "YES" if "MIN" in supplemental else "IMPLICIT" if supplemental else "NO"
    yield {
        "DBID": database.dbid, "NAME": database.name, "DB_UNIQUE_NAME": database.name, "CREATED": facts.resetlogs_time,
        "LOG_MODE": "ARCHIVELOG" if facts.archiving else "NOARCHIVELOG", "OPEN_MODE": "READ ONLY" if session.standby else "READ WRITE",
        "DATABASE_ROLE": "PHYSICAL STANDBY" if session.standby else "PRIMARY", "CDB": "YES" if database.cdb else "NO",
        "CURRENT_SCN": database.standby_scn() if session.standby else engine.read_scn(),
        "CHECKPOINT_CHANGE#": min(engine.redo.current(thread).first for thread in range(1, engine.redo.threads + 1)),
        "RESETLOGS_CHANGE#": facts.resetlogs_scn, "RESETLOGS_TIME": facts.resetlogs_time, "SUPPLEMENTAL_LOG_DATA_MIN": minimal,
        "SUPPLEMENTAL_LOG_DATA_ALL": supplemental_flag("ALL"), "SUPPLEMENTAL_LOG_DATA_PK": supplemental_flag("PK"), "SUPPLEMENTAL_LOG_DATA_UI": supplemental_flag("UI"),
        "SUPPLEMENTAL_LOG_DATA_FK": supplemental_flag("FK"), "FORCE_LOGGING": "NO", "FLASHBACK_ON": "NO", "PLATFORM_NAME": "Linux x86 64-bit",
        "CON_ID": 0,
    }  # fmt: skip


def _local_logging(session: Session) -> set[str]:
    """The logging of the session's pluggable database alone."""
    return session.engine.catalog.facts.supplemental_inside.get(session.container, set())


def _supplemental(session: Session) -> Iterator[Row]:
    names = {"MINIMAL": "MIN", "ALL_COLUMN": "ALL", "PRIMARY_KEY": "PK", "UNIQUE_INDEX": "UI", "FOREIGN_KEY": "FK"}
    inside = _local_logging(session)
    yield {name: "YES" if kind in inside else "NO" for name, kind in names.items()}


def _instance(session: Session) -> Iterator[Row]:
    yield {
        "INSTANCE_NUMBER": session.thread, "INSTANCE_NAME": f"{session.database.name}{session.thread}", "HOST_NAME": "localhost",
        "VERSION": VERSION, "VERSION_FULL": FULL_VERSION, "STATUS": "OPEN", "PARALLEL": "YES" if session.engine.redo.threads > 1 else "NO",
        "THREAD#": session.thread, "DATABASE_STATUS": "ACTIVE", "CON_ID": 0,
    }  # fmt: skip


def _settings(session: Session) -> Iterator[Row]:
    values = PARAMETERS | {"db_name": session.database.name} | session.engine.catalog.facts.parameters
    values["cluster_database"] = "TRUE" if session.engine.redo.threads > 1 else "FALSE"
    for name, value in values.items():
        yield {"NAME": name, "VALUE": value, "DISPLAY_VALUE": value, "ISDEFAULT": "TRUE", "CON_ID": 0}


def _nls(session: Session) -> Iterator[Row]:
    for name, value in session.nls.settings.items():
        yield {"PARAMETER": name, "VALUE": value, "CON_ID": 0}


def _nls_and_charsets(session: Session) -> Iterator[Row]:
    yield from _nls(session)
    for name, value in CHARACTER_SETS.items():
        yield {"PARAMETER": name, "VALUE": value, "CON_ID": 0}


def _containers(session: Session) -> Iterator[Row]:
    for name in session.database.containers:
        number = session.database.container_id(name)
        mode = "READ ONLY" if session.standby or number == 2 else "READ WRITE"
        yield {
            "CON_ID": number,
            "DBID": session.database.dbid + number,
            "NAME": name,
            "OPEN_MODE": mode,
            "CON_UID": number * 1111,
        }


def _pdbs(session: Session) -> Iterator[Row]:
    return (row for row in _containers(session) if row["CON_ID"] > 1)


def _incarnations(session: Session) -> Iterator[Row]:
    facts = session.engine.catalog.facts
    yield {
        "INCARNATION#": 1,
        "RESETLOGS_CHANGE#": facts.resetlogs_scn,
        "RESETLOGS_TIME": facts.resetlogs_time,
        "STATUS": "CURRENT",
        "CON_ID": 0,
    }


def _versions(session: Session) -> Iterator[Row]:
    yield {"BANNER": BANNER, "BANNER_FULL": f"{BANNER}\nVersion {FULL_VERSION}", "BANNER_LEGACY": BANNER, "CON_ID": 0}


def _products(session: Session) -> Iterator[Row]:
    yield {
        "PRODUCT": "Oracle Database 19c Enterprise Edition",
        "VERSION": VERSION,
        "VERSION_FULL": FULL_VERSION,
        "STATUS": "Production",
    }


def _properties(session: Session) -> Iterator[Row]:
    for name, value in {"DBTIMEZONE": "+00:00", **CHARACTER_SETS}.items():
        yield {"PROPERTY_NAME": name, "PROPERTY_VALUE": value}


# rights


def _effective(session: Session) -> set[str]:
    grants = set(session.user.grants)
    for role in grants & set(ROLE_CONTENTS):
        grants |= ROLE_CONTENTS[role]
    return grants


def _session_privileges(session: Session) -> Iterator[Row]:
    for name in sorted(_effective(session) & SYSTEM_PRIVILEGES):
        yield {"PRIVILEGE": name}


def _session_roles(session: Session) -> Iterator[Row]:
    for name in sorted(_effective(session) & ROLES):
        yield {"ROLE": name}


def _system_privileges(session: Session) -> Iterator[Row]:
    for name in sorted(session.user.grants & SYSTEM_PRIVILEGES):
        yield {
            "USERNAME": session.user.name,
            "GRANTEE": session.user.name,
            "PRIVILEGE": name,
            "ADMIN_OPTION": "NO",
            "COMMON": "YES",
        }


def _role_privileges(session: Session) -> Iterator[Row]:
    for name in sorted(session.user.grants & ROLES):
        yield {"USERNAME": session.user.name, "GRANTEE": session.user.name, "GRANTED_ROLE": name, "ADMIN_OPTION": "NO"}


def _object_privileges(session: Session) -> Iterator[Row]:
    for grant in sorted(session.user.grants):
        action, separator, target = grant.partition(" ON ")
        if separator:
            owner, _, name = target.rpartition(".")
            yield {"GRANTEE": session.user.name, "OWNER": owner or "SYS", "TABLE_SCHEMA": owner or "SYS", "TABLE_NAME": name, "GRANTOR": "SYS", "PRIVILEGE": action}  # fmt: skip


DATABASE_COLUMNS = (
    "DBID:N NAME:T DB_UNIQUE_NAME:T CREATED:D LOG_MODE:T OPEN_MODE:T DATABASE_ROLE:T CDB:T CURRENT_SCN:N CHECKPOINT_CHANGE#:N"
    " RESETLOGS_CHANGE#:N RESETLOGS_TIME:D SUPPLEMENTAL_LOG_DATA_MIN:T SUPPLEMENTAL_LOG_DATA_ALL:T SUPPLEMENTAL_LOG_DATA_PK:T"
    " SUPPLEMENTAL_LOG_DATA_UI:T SUPPLEMENTAL_LOG_DATA_FK:T FORCE_LOGGING:T FLASHBACK_ON:T PLATFORM_NAME:T CON_ID:N"
)
NLS_COLUMNS = "PARAMETER:T VALUE:T CON_ID:N"
VIEWS = [
    view("V$DATABASE", DATABASE_COLUMNS, _database),
    view("V$INSTANCE", "INSTANCE_NUMBER:N INSTANCE_NAME:T HOST_NAME:T VERSION:T VERSION_FULL:T STATUS:T PARALLEL:T THREAD#:N DATABASE_STATUS:T CON_ID:N", _instance),
    view("DBA_SUPPLEMENTAL_LOGGING", "MINIMAL:T PRIMARY_KEY:T UNIQUE_INDEX:T FOREIGN_KEY:T ALL_COLUMN:T", _supplemental),
    view("V$PARAMETER", "NAME:T VALUE:T DISPLAY_VALUE:T ISDEFAULT:T CON_ID:N", _settings),
    view("V$SYSTEM_PARAMETER", "NAME:T VALUE:T DISPLAY_VALUE:T ISDEFAULT:T CON_ID:N", _settings),
    view("V$NLS_PARAMETERS", NLS_COLUMNS, _nls_and_charsets),
    view("NLS_DATABASE_PARAMETERS", NLS_COLUMNS, _nls_and_charsets),
    view("NLS_SESSION_PARAMETERS", NLS_COLUMNS, _nls),
    view("V$CONTAINERS", "CON_ID:N DBID:N CON_UID:N NAME:T OPEN_MODE:T", _containers),
    view("V$PDBS", "CON_ID:N DBID:N CON_UID:N NAME:T OPEN_MODE:T", _pdbs),
    view("V$DATABASE_INCARNATION", "INCARNATION#:N RESETLOGS_CHANGE#:N RESETLOGS_TIME:D STATUS:T CON_ID:N", _incarnations),
    view("V$VERSION", "BANNER:T BANNER_FULL:T BANNER_LEGACY:T CON_ID:N", _versions),
    view("PRODUCT_COMPONENT_VERSION", "PRODUCT:T VERSION:T VERSION_FULL:T STATUS:T", _products),
    view("DATABASE_PROPERTIES", "PROPERTY_NAME:T PROPERTY_VALUE:T DESCRIPTION:T", _properties),
    view("SESSION_PRIVS", "PRIVILEGE:T", _session_privileges),
    view("SESSION_ROLES", "ROLE:T", _session_roles),
    view("USER_SYS_PRIVS", "USERNAME:T PRIVILEGE:T ADMIN_OPTION:T COMMON:T", _system_privileges),
    view("USER_ROLE_PRIVS", "USERNAME:T GRANTED_ROLE:T ADMIN_OPTION:T", _role_privileges),
    view("USER_TAB_PRIVS", "GRANTEE:T OWNER:T TABLE_NAME:T GRANTOR:T PRIVILEGE:T", _object_privileges),
    view("ALL_TAB_PRIVS", "GRANTEE:T TABLE_SCHEMA:T TABLE_NAME:T GRANTOR:T PRIVILEGE:T", _object_privileges),
]  # fmt: skip
