"""The privileges of an account, and the commands that give it the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.config_enums import CaptureScope
from airflow_provider_cdc.sources.mongodb.connect import Client
from airflow_provider_cdc.sources.mongodb.log.stream_pipeline import resolve_aggregate_scope

STREAM: Final = ("find", "changeStream")


class Privileges:
    """The privileges of the account that a client has logged in with."""

    def __init__(self, client: Client) -> None:
        status = client.admin.command({"connectionStatus": 1, "showPrivileges": True})["authInfo"]
        self._users: list[Any] = status["authenticatedUsers"]
        self._granted: list[dict[str, Any]] = status.get("authenticatedUserPrivileges", [])

    @property
    def is_unrestricted(self) -> bool:
        """Check whether no account has logged in, so that the deployment has no access control, or refuses everything."""
        return not self._users

    def allows_actions(self, database: str, collection: str, actions: Iterable[str]) -> bool:
        """Check whether actions on a collection are allowed; an empty name means all."""
        return self.is_unrestricted or all(self._allows_action(database, collection, action) for action in actions)

    def _allows_action(self, database: str, collection: str, action: str) -> bool:
        return any(
            action in privilege["actions"] and _covers(privilege["resource"], database, collection)
            for privilege in self._granted
        )


def _covers(resource: dict[str, Any], database: str, collection: str) -> bool:
    if resource.get("anyResource"):
        return True
    if "db" not in resource:
        return False
    return resource["db"] in ("", database) and resource["collection"] in ("", collection)


def stream_allowed(privileges: Privileges, config: MongoDbConfig) -> bool:
    """Check whether the account may open the change stream."""
    database, collection = resolve_aggregate_scope(config)
    if config.capture_scope is CaptureScope.DEPLOYMENT:
        return privileges.allows_actions("", "", STREAM)
    return privileges.allows_actions(database, collection if isinstance(collection, str) else "", STREAM)


def stream_grant(config: MongoDbConfig) -> str:
    """Build the command that lets the account open the change stream."""
    user = config.mongodb_user
    where = f'db.getSiblingDB("{config.mongodb_authsource}")'
    if config.capture_scope is CaptureScope.DEPLOYMENT:
        return f'{where}.grantRolesToUser("{user}", [{{role: "readAnyDatabase", db: "admin"}}])'
    database, _ = resolve_aggregate_scope(config)
    return f'{where}.grantRolesToUser("{user}", [{{role: "read", db: "{database}"}}])'


def write_grant(config: MongoDbConfig, database: str) -> str:
    """Build the command that lets the account write to a database."""
    return f'db.getSiblingDB("{config.mongodb_authsource}").grantRolesToUser("{config.mongodb_user}", [{{role: "readWrite", db: "{database}"}}])'


def oplog_grant(config: MongoDbConfig) -> str:
    """Build the command that lets the account read how far the oplog goes back."""
    return f'db.getSiblingDB("{config.mongodb_authsource}").grantRolesToUser("{config.mongodb_user}", [{{role: "read", db: "local"}}])'
