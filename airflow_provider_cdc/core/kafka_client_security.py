"""Checks that the encryption and the login that a Kafka client is configured with are in force.

librdkafka speaks plain text unless ``security.protocol`` says otherwise, whatever certificates or passwords it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from airflow_provider_cdc.core.errors import ConfigError

log = logging.getLogger(__name__)

_UNCHECKED: Final = {
    ("enable.ssl.certificate.verification", "false"),
    ("ssl.endpoint.identification.algorithm", "none"),
}


def check_client_security(properties: Mapping[str, str], prefix: str, client: str) -> None:
    """Check the properties of a client.

    >>> check_client_security({"sasl.username": "cdc"}, "consumer.", "The consumer")
    Traceback (most recent call last):
    airflow_provider_cdc.core.errors.ConfigError: The consumer would use plaintext, although consumer.sasl.username is set.
    ...

    :param properties: as librdkafka calls them
    :param prefix: of their names in the configuration
    :param client: the subject of the messages
    :raises ConfigError: encryption or a login is configured, and there would be none
    """
    protocol = properties.get("security.protocol", "plaintext").strip().lower()
    for group, word, right in (("ssl.", "ssl", "SSL or SASL_SSL"), ("sasl.", "sasl", "SASL_SSL")):
        names = sorted(f"{prefix}{name}" for name in properties if name.startswith(group))
        if names and word not in protocol:
            raise ConfigError(
                f"{client} would use {protocol}, although {', '.join(names)} {'is' if len(names) == 1 else 'are'} set.",
                safe="Nothing was sent or read.",
                remedy=f"set {prefix}security.protocol={right}",
            )
    unchecked = _UNCHECKED & {(name, value.strip().lower()) for name, value in properties.items()}
    if "ssl" in protocol and unchecked:
        log.warning(
            "%s uses TLS, but the identity of the broker is not verified: %s.",
            client,
            ", ".join(f"{prefix}{name}={value}" for name, value in sorted(unchecked)),
        )
    if protocol == "sasl_plaintext":
        log.warning(
            "%s sends its login over the network without encryption: set %ssecurity.protocol=SASL_SSL.", client, prefix
        )
