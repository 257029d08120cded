"""Properties of databases that clouds run with short-lived login tokens in place of passwords.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, SecretStr, field_validator

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.login_tokens import TOKEN_MAKERS, LoginAddress, make_login_token
from airflow_provider_cdc.sources.relational.config import RelationalConfig


class TokenLoginConfig(RelationalConfig):
    """Password or login token of a connection, and the statements with which it begins.

    A source checks by its own property of TLS that a token reaches its server alone.
    """

    database_initial_statements: str = Field(
        "",
        alias="database.initial.statements",
        description="SQL that every connection runs first, separated by semicolons; write a literal semicolon twice.",
    )
    database_token_provider: str | None = Field(
        None,
        alias="database.token.provider",
        description="Not in Debezium. Log in with a new token for each connection instead of a password: aws_rds, google_cloud_sql or "
        "azure_entra; comes from the Airflow connection. The server's certificate must be verified.",
    )
    database_token_credentials: SecretStr | None = Field(
        None,
        alias="database.token.credentials",
        description="Not in Debezium. JSON object with the credentials for tokens; comes from the Airflow connection. By default, those of the "
        "worker.",
    )

    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("database.token.provider", "database.token.credentials")
    LOGIN_EXTRAS: ClassVar[Mapping[str, str]] = {
        "iam": "true: log in with a token of a cloud instead of a password",
        "aws_conn_id": "connection with the credentials for tokens of RDS and Aurora, by default those of the worker",
        "region_name": "region of RDS or Aurora",
        "gcp_conn_id": "connection with the credentials for tokens of Cloud SQL",
        "azure_conn_id": "connection with the credentials for tokens of Azure Database",
    }

    @field_validator("database_token_provider")
    @classmethod
    def _known_provider(cls, provider: str | None) -> str | None:
        if provider is not None and provider not in TOKEN_MAKERS:
            raise ValueError(f"unknown provider; use one of {', '.join(sorted(TOKEN_MAKERS))}")
        return provider

    def make_password(self) -> str:
        """Return the password, or a new login token: tokens are valid for minutes, so make one for each connection.

        :raises ConfigError: the library for login tokens is not installed
        :raises SourceUnavailable: the cloud gives no login token
        """
        if self.database_token_provider is None:
            return self.database_password.get_secret_value()
        secret = self.database_token_credentials
        return make_login_token(
            self.database_token_provider,
            LoginAddress(self.database_hostname, self.database_port, self.database_user),
            secret.get_secret_value() if secret else "",
            unavailable=SourceUnavailable,
            safe="Nothing was read; the offset is untouched.",
        )

    @property
    def login_remedy(self) -> str:
        """The remedy for a login that the server rejects, without a full stop."""
        if self.database_token_provider is None:
            return "correct the login of the Airflow connection"
        return f"let the account log in by {self.database_token_provider}, and give the cloud identity the right to connect as it"

    def split_initial_statements(self) -> list[str]:
        """Split ``database.initial.statements``, which are separated by ``;``, where ``;;`` is a literal semicolon."""
        text = self.database_initial_statements.replace(";;", "\0")
        return [s.replace("\0", ";").strip() for s in text.split(";") if s.strip()]
