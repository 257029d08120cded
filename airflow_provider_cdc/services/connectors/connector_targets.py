"""The targets that a connector's changes were applied to, for whatever works on their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.target_database import TARGET
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess, access_of, find_connector

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

UNTOUCHED = "No table was changed."


def access_to(record: ConnectorRecord, state_conn_id: str = DEFAULT_CONN_ID) -> ConnectorAccess:
    """Return the access to a connector.

    :raises CdcError: it has not captured yet
    """
    access = access_of(record, state_conn_id)
    if access is None:
        raise CdcError(
            f"The location of the change log of {record.connector} is not recorded.",
            safe=UNTOUCHED,
            remedy="run the capture of the connector once, then try again",
        )
    return access


def known_access(store: StateStore, connector: str, state_conn_id: str = DEFAULT_CONN_ID) -> ConnectorAccess:
    """Return a connector by its name.

    :raises CdcError: there is none, or it has not captured yet
    """
    return access_to(find_connector(store, connector), state_conn_id)


def targets_of(
    access: ConnectorAccess, target: str | None = None, location: str | None = None
) -> list[tuple[str, str]]:
    """Kind and location of the targets that are meant.

    :param target: only of this kind
    :param location: only where these tables are
    :raises CdcError: there is none
    """
    from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports

    connector = access.definition.name
    reports = ApplyReports(access.open_change_log().storage, connector).list_reports()
    # one whose first apply has not come to anything has no tables
    targets = [
        (report["target"], report["location"]) for report in reports if report["last_batch"] or report["table_states"]
    ]
    meant = [pair for pair in targets if location in (None, pair[1]) and target in (None, pair[0])]
    if not meant:
        targets_text = "; ".join(f"{kind} at {place}" for kind, place in targets) or "none"
        raise CdcError(
            f"No changes of {connector} were applied to such a target.",
            where=f"targets of its applies: {targets_text}",
            safe=UNTOUCHED,
            remedy="omit --target and --location to select all targets",
        )
    return meant


def one_target(access: ConnectorAccess, target: str | None = None, location: str | None = None) -> tuple[str, str]:
    """Kind and location of the one target that is meant.

    :raises CdcError: there is none, or several
    """
    meant = targets_of(access, target, location)
    if len(meant) > 1:
        raise CdcError(
            f"The changes of {access.definition.name} are applied to {len(meant)} targets.",
            where="; ".join(f"{kind} at {place}" for kind, place in meant),
            safe=UNTOUCHED,
            remedy="select one with --location and --target",
        )
    return meant[0]


def database_of(access: ConnectorAccess, location: str, other_conn_id: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return connection and properties of a target database of a connector, as its last apply had them.

    :param other_conn_id: another connection to it
    :raises CdcError: they are not recorded, and no connection is given
    """
    from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports

    report = ApplyReports(access.open_change_log().storage, access.definition.name).read(TARGET, location)
    database = (None if report is None else report.get("database")) or {}
    if not (conn_id := other_conn_id or database.get("conn_id", "")):
        raise CdcError(
            f"The connection that applies the changes of {access.definition.name} to {location} is not recorded.",
            safe=UNTOUCHED,
            remedy="give it with --database; or run the apply once, then this command again",
        )
    return conn_id, dict(database.get("sink") or {})
