"""Hides or cuts texts, or replaces them by pseudonyms, before they are written anywhere.

The properties are ``column.mask.with.<length>.chars``, ``column.truncate.to.<length>.chars`` and
``column.mask.hash.v2.<hashAlgorithm>.with.salt.<salt>``. Pseudonyms are those of Debezium's connectors: tables of both can be joined.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.config.base_configuration import COLUMN_HASH, COLUMN_TEXT
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Masking = Callable[["pa.Array"], "pa.Array"]
_TEXT_TYPES = {-16, -15, -9, -1, 1, 12, 2005, 2011}
"""JDBC types of character columns."""


SALT_OF_CONNECTION: Final = "${connection}"
"""Stands in the name of a property for the ``column.mask.salt`` of the Airflow connection."""
_ALGORITHMS: Final = {
    "MD5": "md5", "SHA": "sha1", "SHA1": "sha1", "SHA-1": "sha1", "SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384",
    "SHA-512": "sha512", "SHA3-224": "sha3_224", "SHA3-256": "sha3_256", "SHA3-384": "sha3_384", "SHA3-512": "sha3_512",
}  # fmt: skip
"""Names of Java's ``MessageDigest`` → names of :mod:`hashlib`."""
_JAVA_TEXT, _JAVA_LONG_TEXT = b"\xac\xed\x00\x05t", b"\xac\xed\x00\x05|"
"""The beginnings of a text that Java has serialized, by its length."""

WHOLE: Final = math.inf
"""The number of characters that are shown of texts that are not hidden."""


class Maskings:
    """The properties of one connector, compiled.

    :param properties: name → patterns of columns, ``<database>.<table>.<column>``
    :param salt: of the connection
    """

    def __init__(self, properties: Mapping[str, Sequence[str]], salt: str | None = None) -> None:
        self._rules = [
            (name, _masking(name, salt), [re.compile(p, re.IGNORECASE) for p in patterns])
            for name, patterns in properties.items()
        ]

    def find_column_maskings(
        self, schema: TableSchema, names: Sequence[TableId | str], key: Sequence[str]
    ) -> dict[int, Masking]:
        """Map the number of a column to the masking of its values. If several properties match, the first one counts.

        :param names: of the table, as patterns may write them
        :param key: the key columns of the table
        :raises ConfigError: a column of the key would be changed: rows could not be distinguished any more
        """
        maskings: dict[int, Masking] = {}
        for i, column in enumerate(schema.columns):
            for name, masking, patterns in self._rules:
                if i in maskings or not any(p.fullmatch(f"{n}.{column.name}") for p in patterns for n in names):
                    continue
                if column.name in key:
                    raise ConfigError(
                        f"{name}: {schema.id}.{column.name} is part of the key, which distinguishes rows, and cannot be masked or truncated.",
                        where=f"table {schema.id}",
                        remedy="remove the column from the property, or name another key with message.key.columns",
                    )
                if _is_text(column):
                    maskings[i] = _fit(masking, column) if COLUMN_HASH.fullmatch(name) else masking
                else:
                    log.warning(
                        "%s does not hide %s.%s: the column does not contain text.", name, schema.id, column.name
                    )
        return maskings

    def find_text_maskings(self, schema: TableSchema, names: Sequence[TableId | str]) -> dict[str, Masking]:
        """Column of texts → the masking of its values. For rows that are shown: here it is no error if a column is part of the key."""
        maskings = {column.name: self.find_masking(column.name, names) for column in schema.columns if _is_text(column)}
        return {name: masking for name, masking in maskings.items() if masking is not None and name not in schema.key}

    def find_masking(self, column: str, names: Sequence[TableId | str]) -> Masking | None:
        """Find the masking of the texts of a column that is known by its name alone."""
        return next(
            (
                masking
                for _, masking, patterns in self._rules
                if any(p.fullmatch(f"{n}.{column}") for p in patterns for n in names)
            ),
            None,
        )

    def compute_visible_length(self, column: Column, names: Sequence[TableId | str]) -> float:
        """Return how many characters are shown of a column's texts, at most."""
        name = self._find_property(column, names)
        if name is None:
            return WHOLE
        if COLUMN_HASH.fullmatch(name):
            return 0
        kind, length = _parts(name)
        return 0 if kind == "mask.with" else length

    def find_pseudonym(self, column: Column, names: Sequence[TableId | str]) -> str | None:
        """Return the property by which a column's texts are pseudonyms; ``None`` if they are not."""
        name = self._find_property(column, names)
        return name if name is not None and COLUMN_HASH.fullmatch(name) else None

    def _find_property(self, column: Column, names: Sequence[TableId | str]) -> str | None:
        if not _is_text(column):
            return None
        matching = (
            name
            for name, _, rules in self._rules
            if any(p.fullmatch(f"{n}.{column.name}") for p in rules for n in names)
        )
        return next(matching, None)


def check_hash_property(name: str) -> None:
    """Check the algorithm that the name of a property has.

    :raises ValueError: there is no such algorithm
    """
    match = COLUMN_HASH.fullmatch(name)
    if match is not None and match["algorithm"].upper() not in _ALGORITHMS:
        known = ", ".join(sorted(_ALGORITHMS))
        raise ValueError(f"{name}: {match['algorithm']!r} is not a hash algorithm. Valid algorithms are: {known}")


def _is_text(column: Column) -> bool:
    return column.type == "string" and column.declared.jdbc_type in _TEXT_TYPES


def _parts(name: str) -> tuple[str, int]:
    match = COLUMN_TEXT.fullmatch(name)
    if match is None:
        raise ConfigError(f"{name} is neither column.mask.with.<length>.chars nor column.truncate.to.<length>.chars.")
    return match[1], int(match[2])


def _masking(name: str, salt: str | None) -> Masking:
    import pyarrow as pa
    import pyarrow.compute as pc

    if COLUMN_HASH.fullmatch(name):
        return _hashing(name, salt)
    kind, length = _parts(name)
    if kind == "mask.with":
        stars = pa.scalar("*" * length)
        return lambda values: pc.if_else(values.is_valid(), stars, pa.scalar(None, pa.string()))
    return lambda values: pc.utf8_slice_codeunits(values, 0, length)


def _fit(masking: Masking, column: Column) -> Masking:
    """Shorten pseudonyms to the length of their column."""
    import pyarrow.compute as pc

    length = column.declared.length
    return (lambda values: pc.utf8_slice_codeunits(masking(values), 0, length)) if length else masking


def _hashing(name: str, salt_of_connection: str | None) -> Masking:
    """Return the function that replaces texts by the hexadecimal hash of salt and text. It hashes each of equal texts once."""
    import pyarrow as pa

    match = COLUMN_HASH.fullmatch(name)
    assert match is not None
    algorithm, salt = _ALGORITHMS[match["algorithm"].upper()], match["salt"]
    if salt == SALT_OF_CONNECTION:
        salt = salt_of_connection or ""  # the configuration has checked that there is one where texts are hashed
    salted = hashlib.new(algorithm, salt.encode(), usedforsecurity=False)
    to_bytes = str.encode if match["v2"] else _serialize_as_java

    def hash_text(text: str) -> str:
        digest = salted.copy()
        digest.update(to_bytes(text))
        return digest.hexdigest()

    def hash_texts(values: pa.Array) -> pa.Array:
        distinct = values.dictionary_encode()
        hashes = pa.array([hash_text(text) for text in distinct.dictionary.to_pylist()], pa.string())
        return hashes.take(distinct.indices)

    return hash_texts


def _serialize_as_java(text: str) -> bytes:
    """Return the bytes that Java's ``ObjectOutputStream`` writes of a text: the form that is hashed without ``v2``."""
    units = text.encode("utf-16-be")
    modified = "".join(chr(high << 8 | low) for high, low in zip(units[::2], units[1::2], strict=True))
    data = modified.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")
    if len(data) > 0xFFFF:
        return _JAVA_LONG_TEXT + len(data).to_bytes(8) + data
    return _JAVA_TEXT + len(data).to_bytes(2) + data
