"""Values as text."""

from __future__ import annotations

from airflow_provider_cdc.core.config.property_enums import BinaryHandling
from airflow_provider_cdc.sources.relational.binary_mode_format import binary_text


def test_bytes_are_text_in_every_mode_but_one() -> None:
    found = {mode: text(b"\xfb\xff\x00") for mode in BinaryHandling if (text := binary_text(mode)) is not None}
    assert found == {
        BinaryHandling.BASE64: "+/8A",
        BinaryHandling.BASE64_URL_SAFE: "-_8A",
        BinaryHandling.HEX: "fbff00",
    }
