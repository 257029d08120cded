"""What an account may do, and the commands that give it the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.config_enums import CaptureScope
from airflow_provider_cdc.sources.mongodb.connect import Client
from airflow_provider_cdc.sources.mongodb.log.pipeline import target

STREAM: Final = ("find", "changeStream")


class Privileges:
    """The privileges of the account that a client has logged in with."""

    def __init__(self, client: Client) -> None:
        found = client.admin.command({"connectionStatus": 1, "showPrivileges": True})["authInfo"]
        self._users: list[Any] = found["authenticatedUsers"]
        self._given: list[dict[str, Any]] = found.get("authenticatedUserPrivileges", [])

    @property
    def unrestricted(self) -> bool:
        """Whether nobody has logged in, so that the deployment has no access control, or refuses everything."""
        return not self._users

    def allows(self, database: str, collection: str, actions: Iterable[str]) -> bool:
        """Whether actions on a collection are allowed; an empty name means all."""
        return self.unrestricted or all(self._one(database, collection, action) for action in actions)

    def _one(self, database: str, collection: str, action: str) -> bool:
        return any(action in one["actions"] and _covers(one["resource"], database, collection) for one in self._given)


def _covers(resource: dict[str, Any], database: str, collection: str) -> bool:
    if resource.get("anyResource"):
        return True
    if "db" not in resource:
        return False
    return resource["db"] in ("", database) and resource["collection"] in ("", collection)


def stream_allowed(privileges: Privileges, config: MongoDbConfig) -> bool:
    """Whether the account may open the change stream."""
    database, what = target(config)
    if config.capture_scope is CaptureScope.DEPLOYMENT:
        return privileges.allows("", "", STREAM)
    return privileges.allows(database, what if isinstance(what, str) else "", STREAM)


def stream_grant(config: MongoDbConfig) -> str:
    """The command that lets the account open the change stream."""
    user = config.mongodb_user
    where = f'db.getSiblingDB("{config.mongodb_authsource}")'
    if config.capture_scope is CaptureScope.DEPLOYMENT:
        return f'{where}.grantRolesToUser("{user}", [{{role: "readAnyDatabase", db: "admin"}}])'
    database, _ = target(config)
    return f'{where}.grantRolesToUser("{user}", [{{role: "read", db: "{database}"}}])'


def write_grant(config: MongoDbConfig, database: str) -> str:
    """The command that lets the account write to a database."""
    return f'db.getSiblingDB("{config.mongodb_authsource}").grantRolesToUser("{config.mongodb_user}", [{{role: "readWrite", db: "{database}"}}])'


def oplog_grant(config: MongoDbConfig) -> str:
    """The command that lets the account read how far the oplog goes back."""
    return f'db.getSiblingDB("{config.mongodb_authsource}").grantRolesToUser("{config.mongodb_user}", [{{role: "read", db: "local"}}])'
