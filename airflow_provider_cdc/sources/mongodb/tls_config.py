"""Properties of encrypted connections.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from typing import Final, Self

from pydantic import Field, SecretStr, model_validator

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig

_TLS: Final = re.compile(r"[?&](?:tls|ssl)=(true|false)(?:&|$)", re.IGNORECASE)


def is_secure(uri: str) -> bool:
    """Return whether a connection string asks for TLS: by an option, or by SRV records, which do by themselves."""
    match = _TLS.search(uri)
    return match[1].lower() == "true" if match else uri.lower().startswith("mongodb+srv:")


class TlsConfig(ConnectorConfig):
    """Properties for connections that use TLS, and for their certificates."""

    mongodb_ssl_enabled: bool = Field(
        False,
        alias="mongodb.ssl.enabled",
        description="Whether connections to all members use TLS; tls=true or mongodb+srv in the connection string also "
        "enable TLS.",
    )
    mongodb_ssl_invalid_hostname_allowed: bool = Field(
        False,
        alias="mongodb.ssl.invalid.hostname.allowed",
        description="Whether a certificate need not match the host name of the connection.",
    )
    mongodb_ssl_ca: str | None = Field(
        None, alias="mongodb.ssl.ca", description="Not in Debezium. File of trusted certificates (PEM), on the workers."
    )
    mongodb_ssl_certificate: str | None = Field(
        None,
        alias="mongodb.ssl.certificate",
        description="Not in Debezium. File with the client's certificate and its key (PEM), on the workers; for X.509.",
    )
    mongodb_ssl_certificate_password: SecretStr = Field(
        SecretStr(""),
        alias="mongodb.ssl.certificate.password",
        description="Not in Debezium. Password of the client's key; comes from the Airflow connection.",
    )

    @property
    def has_tls(self) -> bool:
        """Check whether connections use TLS."""
        return self.mongodb_ssl_enabled or is_secure(self.connection_uri)

    @property
    def connection_uri(self) -> str:
        """The connection string in MongoDB's form."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _certificates_are_used(self) -> Self:
        for name, file in (("ca", self.mongodb_ssl_ca), ("certificate", self.mongodb_ssl_certificate)):
            if file and not self.has_tls:
                raise ValueError(f"mongodb.ssl.{name}: has no effect without TLS; set mongodb.ssl.enabled=true")
        return self
