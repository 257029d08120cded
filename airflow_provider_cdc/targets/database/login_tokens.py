"""Logins of a target's engine by token: each connection that it opens gets a new one."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetUnavailable
from airflow_provider_cdc.core.login_tokens import LoginAddress, check_token_provider, make_login_token

_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}


def use_login_tokens(engine: sa.Engine, provider: str, credentials: str) -> None:
    """Let each connection of an engine log in with a new token as its password.

        >>> use_login_tokens(engine, "aws_rds", '{"region_name": "eu-central-1"}')

    :param provider: a key of :data:`airflow_provider_cdc.core.login_tokens.TOKEN_MAKERS`
    :param credentials: a JSON object for it; an empty text means those of the environment
    :raises ConfigError: there is no such provider
    """
    check_token_provider(provider, "connection.token.provider")

    @sa.event.listens_for(engine, "do_connect")
    def set_password(dialect: Any, record: Any, arguments: Any, settings: dict[str, Any]) -> None:
        settings["password"] = make_login_token(
            provider,
            _address_of(engine.url),
            credentials,
            unavailable=TargetUnavailable,
            safe="Its tables are complete up to the batch of their marker.",
        )


def _address_of(url: sa.URL) -> LoginAddress:
    port = url.port or _PORTS[url.get_backend_name()]
    return LoginAddress(url.host or "", port, url.username or "")
