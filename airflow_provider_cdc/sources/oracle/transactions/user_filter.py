"""Decides by its user and client id whether a transaction is captured (``log.mining.username.*.list``, ``log.mining.clientid.*.list``).

LogMiner gives them for a transaction whose START is in the mined range, so they are decided once for each transaction, and kept with it.
"""

from __future__ import annotations

import logging
from typing import Final

from airflow_provider_cdc.sources.oracle.config import OracleConfig

log = logging.getLogger(__name__)

OWN_USERS: Final = ("SYS", "SYSTEM")
"""Users whose changes are never captured (Debezium Oracle connector, "Creating users for the connector")."""


class UserFilter:
    """The configured lists."""

    def __init__(self, config: OracleConfig) -> None:
        self._only = {name.upper() for name in config.log_mining_username_include_list}
        self._without = {name.upper() for name in config.log_mining_username_exclude_list} | set(OWN_USERS)
        self._only_clients = set(config.log_mining_clientid_include_list)
        self._without_clients = set(config.log_mining_clientid_exclude_list)
        self._lists = bool(
            self._only or config.log_mining_username_exclude_list or self._only_clients or self._without_clients
        )
        self._warned = False

    def is_captured_user(self, user: str | None, client_id: str | None) -> bool:
        """Check whether transactions of a user and a client id are captured. Those of an unknown user are.

        :param user: ``None`` = not known, since the transaction began before the mined range
        """
        if user is None:
            if self._lists and not self._warned:
                self._warned = True
                log.warning(
                    "LogMiner does not name the user of a transaction that began before the mined range: log.mining.username.*.list and "
                    "log.mining.clientid.*.list do not apply to it, and its changes are captured."
                )
            return True
        if user.upper() in self._without or (self._only and user.upper() not in self._only):
            return False
        if self._only_clients and client_id not in self._only_clients:
            return False
        return client_id not in self._without_clients
