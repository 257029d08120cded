"""A package of a user's, with converters of columns, for one test."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.entry_points import CONVERTERS
from tests.support.packages import install_package

_CODE = """
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.converters.column_converter import ColumnConverter, Conversion

SEEN, MADE = [], []


class Isbn(ColumnConverter):
    type, convert, nullable = "int64", None, False

    def __init__(self, options):
        super().__init__(options)
        MADE.append(options)

    def find_conversion(self, table, column):
        if not column.name.lower().startswith(self.options.get("column", "isbn")):
            return None
        convert = type(self).convert or self.parse
        named = {} if self.type.startswith(("d", "t")) else {"schema_name": self.options.get("schema.name")}
        return Conversion(self.type, convert, nullable=self.nullable, **named)

    def parse(self, values):
        SEEN.append(values.to_pylist())
        assert not values.null_count
        return pc.replace_substring(values, "-", "").cast(pa.int64())


class Price(ColumnConverter):
    def find_conversion(self, table, column):
        return Conversion("decimal128(8, 2)", self.parse) if column.name.lower() == "price" else None

    def parse(self, values):
        return values.cast(pa.decimal128(8, 2))


class Broken(Price):
    def __init__(self, options):
        raise RuntimeError("no licence")


class Other:
    def __init__(self, options): ...
"""


def own_converters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install the package, and return its module: ``isbn``, ``price``, ``com.example.Isbn``, and ones that cannot be used."""
    (place := folder / "own").mkdir()
    names = {
        "isbn": "{module}:Isbn", "com.example.Isbn": "{module}:Isbn", "price": "{module}:Price", "broken": "{module}:Broken",
        "other": "{module}:Other", "gone": "{module}:Gone", "plain": "{module}:SEEN",
    }  # fmt: skip
    install_package(place, monkeypatch, {CONVERTERS: names}, _CODE)
    return importlib.import_module("added_own")
