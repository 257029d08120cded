"""Texts of values as the server prints them. Random ones, compared with servers: ``tests/cases/test_values.py``."""

from __future__ import annotations

import ipaddress

import pytest

from airflow_provider_cdc.sources.mysql.columns.binlog_value_texts import inet6_text


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("2001:db8:0:1:2:3:4:5", "2001:db8::1:2:3:4:5"),
        ("1:0:2:0:3:0:4:0", "1::2:0:3:0:4:0"),
        ("1:0:2:0:0:3:4:5", "1:0:2::3:4:5"),
        ("1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7::"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
        ("::1", "::1"),
        ("::", "::"),
        ("::102:304", "::1.2.3.4"),
        ("::ffff:102:304", "::ffff:1.2.3.4"),
    ],
)
def test_an_address_is_shortened_as_the_server_shortens_it(given: str, printed: str) -> None:
    """H5: a snapshot has the server's text. Another text of the same key would be another row."""
    assert inet6_text(ipaddress.IPv6Address(given).packed) == printed
