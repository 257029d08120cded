"""Positions that people write, on a page or in a command: every kind of source says of each whether it is one, whatever is in it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.sources import SOURCES, load_source

WRITTEN: dict[str, list[dict[str, Any]]] = {
    "memory": [{"entry": 3}],
    "mysql": [
        {"file": "binlog.000012", "pos": 4, "created": 1, "server": "1", "gtids": "24bc7850-2c16-11e6-a073-0242ac110002:1-9",
         "last": {"gtid": "0-1-5", "file": "binlog.000012", "pos": 4, "time": 1, "changes": 5}},
        {"file": "", "pos": 4, "gtids": "0-1-5", "prepared": {"x": {"file": "binlog.000001", "pos": 9, "server": "1"}}},
    ],
    "oracle": [{"scn": "324567897", "commit_scn": "324567900:1:6.28.807", "read_scn": "324567890", "resetlogs": "1", "dbid": 2, "given_up": "a-b"}],
    "db2": [{"commit_lsn": "00000025:00000d08:0025", "published_us": 1, "seen_us": 5, "mark": 3, "awaits": 2, "acknowledged": {"a.b": "00000025:00000d08:0025"}, "created_us": {"a.b": 4}}],
    "mongodb": [
        {"sec": 1795333441, "ord": 36},
        {"resume_token": "82635019A0000000012B042C0100296E5A1004AB1154ACACD849A48C61756D70D3B21F463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B65790046645F69640064635019A078BE67426D7CF4D2000004"},
    ],
    "postgresql": [{"lsn": "16/B374D848", "system": "7351201234567890123", "timeline": 2}, {"lsn": "0/0"}],
    "debezium": [{"file": "a.jsonl", "offset": 12, "line": 1, "before": 0, "size": 20}, {"topics": {"a": {"0": 5}}}],
}  # fmt: skip
WRITTEN["mariadb"] = WRITTEN["mysql"]
ODD: list[Any] = [
    None, True, -1, 10**30, 1.5, "", "x", "<b>", "\u202e", [], [1], {}, {"x": 1}, {"0": None}, {"file": 1}, "9" * 5000, "99999999999999999999",
]  # fmt: skip


def position(kind: str, data: dict[str, Any]) -> Any:
    """Read a position without a connected source: that needs no database."""
    return Source.position_of(load_source(kind).__new__(load_source(kind)), data)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_position_is_read_as_it_is_written_again(kind: str) -> None:
    for data in WRITTEN[kind]:
        found = position(kind, data)
        assert position(kind, found.to_json()) == found
        assert found.has_reached(found)
        assert str(found)


@pytest.mark.parametrize("kind", SOURCES)
def test_whatever_is_written_in_any_place_is_a_position_or_refused(kind: str) -> None:
    tried = [{}, {"x": 1}, *({name: odd} for data in WRITTEN[kind] for name in data for odd in ODD)]
    tried += [{**data, name: odd} for data in WRITTEN[kind] for name in [*data, "x"] for odd in ODD]
    tried += [{k: v for k, v in data.items() if k != name} for data in WRITTEN[kind] for name in data]
    refused = 0
    for data in tried:
        try:
            found = position(kind, data)
        except ConfigError:
            refused += 1
        else:
            assert found.has_reached(position(kind, found.to_json())), data
            assert str(found)
    assert refused > len(tried) / 4
