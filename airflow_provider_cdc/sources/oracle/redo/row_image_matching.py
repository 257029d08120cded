"""The row images of changes and of the conditions that long values begin with, in common arrays.

Images 0 … n-1 are those of the changes, in their order; the images of the conditions follow.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model import log_items
from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.redo.literal_converter import UNAVAILABLE
from airflow_provider_cdc.sources.oracle.redo.long_value import MAX_BYTES, LongValue
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import ParsedLiteral, UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import Int64s, Mask, RedoReader, RedoRows
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType


class RowImages:
    """Row images, and which of them are of the same table row. Methods take indices of images.

    :param rows: the changes
    :param conditions: conditions of the beginnings of long values
    :param texts: the statements of these beginnings, for errors
    :ivar lobs: indices of the columns with LOBs
    :ivar long: indices of the columns whose values may be long: LOBs and long texts
    :ivar keys_after: per image a number for the key of the after image; equal numbers are equal keys; -1 = no whole key
    :ivar keys_before: the same for the before image
    """

    def __init__(
        self, reader: RedoReader, rows: RedoRows, conditions: list[dict[str, ParsedLiteral]], texts: list[str]
    ) -> None:
        self.reader, self.changes = reader, rows
        self.n = len(rows)
        reads = [reader.column_read(c) for c in range(len(reader.schema.columns))]
        self.lobs = [c for c, read in enumerate(reads) if read.how in (k.TEXT, k.BYTES) and read.a == 1]
        types = [ColumnType.from_column(column) for column in reader.schema.columns]
        self.long = [
            *self.lobs,
            *(c for c, read in enumerate(reads) if types[c].is_long_text and read.how != k.NOT_READ),
        ]
        self._emptied = {c for c in self.lobs if types[c].base != "XMLTYPE"}
        others = [c for c, read in enumerate(reads) if c not in self.lobs and read.how != k.NOT_READ]
        self._others = others
        width = len(reads)
        named, missing = reader.read_conditions(conditions, texts)
        absent = np.zeros((width, self.n), np.bool_)
        self.after = pa.concat_arrays([_or_nulls(rows.after, self.n, named.type), named])
        self.before = pa.concat_arrays([_or_nulls(rows.before, self.n, named.type), named])
        self.missing_after = np.hstack([absent if rows.unavailable_after is None else rows.unavailable_after, missing])
        self.missing_before = np.hstack(
            [absent if rows.unavailable_before is None else rows.unavailable_before, missing]
        )
        key = [reader.schema.column_names.index(name) for name in reader.schema.key]
        self._keyed = bool(key)
        self._identity = key or others
        self._codes_after, self._codes_before = self._codes(self._identity)
        self.keys_after, self.keys_before = self._keys()

    def _codes(self, columns: list[int]) -> tuple[Int64s, Int64s]:
        """Per image and column a number for each distinct value; -1 = the statement does not have the value."""
        size = len(self.after)
        numbers = np.full((2 * size, len(columns)), -1, np.int64)
        for at, c in enumerate(columns):
            both = pa.concat_arrays([self.after.field(c), self.before.field(c)])
            codes = both.dictionary_encode(null_encoding="encode").indices
            numbers[:, at] = codes.to_numpy(zero_copy_only=False)
            numbers[np.concatenate([self.missing_after[c], self.missing_before[c]]), at] = -1
        return numbers[:size], numbers[size:]

    def _keys(self) -> tuple[list[int], list[int]]:
        """Assign a number to each distinct key.

        -1 = no key, a key with NULL, or not all its columns are in the statement.
        """
        size = len(self.after)
        if not self._keyed:
            return [-1] * size, [-1] * size
        codes = np.vstack([self._codes_after, self._codes_before])
        nulls = [self.after.field(c).is_null() for c in self._identity] + [
            self.before.field(c).is_null() for c in self._identity
        ]
        null = (
            np.array([n.to_numpy(zero_copy_only=False) for n in nulls])
            .reshape(2, len(self._identity), size)
            .any(axis=1)
        )
        whole = (codes >= 0).all(axis=1) & ~null.reshape(-1)
        keys = codes[:, 0]
        if codes.shape[1] > 1:
            keys = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
        key_numbers: list[int] = np.where(whole, keys, -1).tolist()
        return key_numbers[:size], key_numbers[size:]

    # -- images that belong together --------------------------------------------------------------------------------------

    def lacks_key(self, begin: int) -> bool:
        """Check whether the condition of a beginning does not have all columns of the table's key."""
        return self._keyed and bool((self._codes_after[begin] < 0).any())

    def lacks_column(self, change: int, column: int) -> bool:
        """Check whether a change does not name a column that is read."""
        return column in self.lobs and bool(self.missing_after[column, change])

    def names_column(self, image: int, column: int) -> bool:
        """Check whether a change sets a column; the condition of a beginning sets none."""
        return image < self.n and not self.missing_after[column, image]

    def is_same_row(self, first: int, second: int) -> bool:
        """Check whether two conditions name the same row."""
        if self._keyed:
            return self.keys_after[first] == self.keys_after[second] != -1
        return bool((self._codes_after[first] == self._codes_after[second]).all())

    def matches_row(self, change: int, begin: int) -> bool:
        """Check whether the condition of a beginning matches the row of a change, in the columns that both have."""
        condition = self._codes_after[begin]
        op = self.changes.op[change] if change < self.n else log_items.UPDATE
        for codes, absent in ((self._codes_after, log_items.DELETE), (self._codes_before, log_items.CREATE)):
            if op == absent:
                continue
            have = codes[change]
            if ((have == condition) | (have < 0) | (condition < 0)).all():
                return True
        return False

    def completes_change(self, first: int, update: int) -> bool:
        """Check whether an update only sets LOBs of the row of an earlier change of the same statement."""
        have, condition = self._codes_after[first], self._codes_before[update]
        anything = np.zeros(len(have), np.bool_) if self._keyed else (have < 0) | (condition < 0)
        same = (((have == condition) & (have >= 0)) | anything).all()
        return bool(same and self._only_lobs[update])

    @cached_property
    def _only_lobs(self) -> Mask:
        """Mask of the updates that set LOBs and change no other column."""
        n = self.n
        only_lobs = np.zeros(n, np.bool_)
        for c in self.lobs:
            only_lobs |= ~self.missing_after[c, :n]
        only_lobs &= self.changes.op == log_items.UPDATE
        picked = np.flatnonzero(only_lobs)
        take = pa.array(picked)
        for c in self._others:
            a, b = self.after.field(c).take(take), self.before.field(c).take(take)
            same = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(a.is_null(), b.is_null()))
            only_lobs[picked] &= same.to_numpy(zero_copy_only=False)
        return only_lobs

    def sets_lob_column(self, change: int, column: int) -> bool:
        """Check whether an update sets a LOB column."""
        return not self.missing_after[column, change]

    def is_lob(self, column: int) -> bool:
        """Check whether a column is a CLOB, NCLOB or BLOB."""
        return column in self._emptied

    def is_empty(self, change: int, column: int) -> bool:
        """Check whether a change has the placeholder of a value that follows.

        The placeholder is an empty LOB, or NULL for an XML document or string.
        """
        if change >= self.n or self.missing_after[column, change] or self.changes.op[change] == log_items.DELETE:
            return False
        value = self.after.field(column)[change].as_py()
        if column in self._emptied:
            return value in ("", b"")
        return value is None and (column in self.lobs or bool(self.changes.op[change] == log_items.CREATE))

    # -- rows -------------------------------------------------------------------------------------------------------------

    def select_rows(self, images: Int64s, op: npt.NDArray[np.int8]) -> RedoRows:
        """Return the rows with these images.

        :param op: operation code of each row
        """
        picked = pa.array(images)
        plain = np.concatenate([self.changes.plain, np.ones(len(self.after) - self.n, np.bool_)])[images]
        rows = RedoRows(op, None, None, None, None, plain)
        self._images_of_rows = images
        if (op != log_items.CREATE).any():
            rows.before = self.before.take(picked)
            rows.unavailable_before = _or_none(self.missing_before[:, images])
        if (op != log_items.DELETE).any():
            rows.after = self.after.take(picked)
            rows.unavailable_after = _or_none(self.missing_after[:, images])
        return rows

    def replace_long_values(self, rows: RedoRows, replaced: dict[int, list[tuple[int, Any]]]) -> Mask | None:
        """Put long values into the after images.

        :param rows: the last result of :meth:`take`; changed
        :param replaced: column → (index of the row, value as in :attr:`.lob_transaction_state`); emptied, to free memory
        :return: ``bool[column, row]``: values that are not known; ``None`` if there are none
        :raises UnreadableValue: the values are too large for one batch, or a value cannot be assembled
        """
        assert rows.after is not None
        n = len(rows)
        unknown = np.zeros((len(self.reader.schema.columns), n), np.bool_)
        missing = rows.unavailable_after
        missing = np.zeros_like(unknown) if missing is None else missing
        children = [rows.after.field(c) for c in range(rows.after.type.num_fields)]
        for c in sorted(replaced):
            take, bytes_ = self._images_of_rows.copy(), 0
            values: list[Any] = []
            for at, value in replaced.pop(c):
                if isinstance(value, int):
                    take[at], missing[c, at] = value, self.missing_after[c, value]
                    continue
                assembled = self._result(value, c)
                unknown[c, at] = missing[c, at] = assembled is UNAVAILABLE
                take[at] = len(self.after) + len(values)
                values.append(None if assembled is UNAVAILABLE else assembled)
                bytes_ += len(assembled) if values[-1] is not None else 0
            if bytes_ > MAX_BYTES:
                raise self._unreadable(f"{bytes_:,} bytes of long values are too many for one batch", c)
            read = self.reader.column_read(c)
            array = read.finish(pa.array(values, read.raw))
            values.clear()
            children[c] = pa.concat_arrays([self.after.field(c), array]).take(pa.array(take))
        absent = rows.after.is_null() if rows.after.null_count else None
        rows.after = pa.StructArray.from_arrays(children, fields=list(rows.after.type), mask=absent)
        rows.unavailable_after = _or_none(missing)
        return _or_none(unknown)

    def _result(self, value: Any, column: int) -> Any:
        if not isinstance(value, LongValue):
            return value
        try:
            data = value.to_bytes()
        except UnreadableRedo as e:
            raise self._unreadable(str(e), column) from e
        return UNAVAILABLE if data is None else memoryview(data)

    def _unreadable(self, problem: str, column: int) -> CdcError:
        reader = self.reader
        return reader.build_unreadable_error(
            f"A long value cannot be assembled: {problem}.", column=reader.schema.column_names[column]
        )


def _or_nulls(image: pa.StructArray | None, n: int, type_: pa.DataType) -> pa.StructArray:
    return pa.nulls(n, type_) if image is None else image


def _or_none(mask: Mask) -> Mask | None:
    return mask if mask.any() else None
