"""Reads many ``SQL_REDO`` statements of one table into typed columns.

>>> rows = RedoReader(schema, config).read(pa.array([text, ...]), codes)
>>> rows.after
<pyarrow.lib.StructArray object at ...>
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import CdcError, SchemaConflict, UnreadableValue
from airflow_provider_cdc.core.model import log_items
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.name_patterns import escape_name
from airflow_provider_cdc.core.remedy_commands import read_whole
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.kernels.literal_conversion import convert_rows
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import DELETE, INSERT, UPDATE
from airflow_provider_cdc.sources.oracle.kernels.statement_splitter import AFTER, BEFORE, split_rows
from airflow_provider_cdc.sources.oracle.redo.kernel_column_plan import ColumnReadPlan, KernelLayout
from airflow_provider_cdc.sources.oracle.redo.literal_converter import UNAVAILABLE, read_value
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import ParsedLiteral, UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.statement_parser import RedoStatement, read_statement

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

SPAN_ROWS = 2_048
"""Rows per pass of the kernels: few enough that the spans of their literals stay in the processor's cache."""
MAX_BYTES = 256 << 20
_OPERATION = np.array([0, log_items.CREATE, log_items.DELETE, log_items.UPDATE], np.int8)
_STALE = re.compile(r"COL \d+")
_SAFE = "Nothing is lost: the batch was not written."


@dataclass(slots=True)
class RedoRows:
    """The rows of the statements, in their order.

    :param op: ``int8[n]``, codes of ``core.model.log_items``
    :param before: struct array of length n, null for a row without a before image; ``None`` if no row has one
    :param after: the same for the after image
    :param unavailable_before: ``bool[column, row]``: values that the statement does not have, which are null in ``before``: a LOB,
        or a column that is not in ``where``; ``None`` if there are none
    :param unavailable_after: the same for ``after``: columns that are neither in ``set`` nor in ``where``
    :param plain: mask of the rows that were read one by one
    """

    op: npt.NDArray[np.int8]
    before: pa.StructArray | None
    after: pa.StructArray | None
    unavailable_before: Mask | None
    unavailable_after: Mask | None
    plain: Mask

    def __len__(self) -> int:
        return len(self.op)


@dataclass(slots=True)
class _Image:
    values: pa.StructArray
    unavailable: Mask


class RedoReader:
    """Reads the redo statements of one table with one schema.

    :param ignored: names of the table's columns that are not captured
    :ivar long: whether LOBs or XML documents are read
    """

    def __init__(self, schema: TableSchema, config: OracleConfig, ignored: tuple[str, ...] = ()) -> None:
        self.schema = schema
        self.ignored = ignored
        self._layout = KernelLayout(schema, config, ignored)
        self.long = any(read.how in (k.TEXT, k.BYTES) and read.a == 1 for read in self._layout.columns)
        self._relaxed = config.relaxed_quotes
        self._read_whole = read_whole(config.connector_name, schema.id)
        self._spans = _LiteralSpans(len(schema.columns), SPAN_ROWS)

    def read(self, texts: pa.Array, codes: npt.NDArray[Any]) -> RedoRows:
        """Read complete statements (continuation rows joined), up to 256 MB.

        :param texts: string or binary array, 32 or 64-bit offsets, without nulls
        :param codes: ``OPERATION_CODE`` of each: 1 insert, 2 delete, 3 update
        :raises UnreadableValue: a statement or a value in it cannot be read
        :raises SchemaConflict: a statement names another table, or a column that the schema does not have
        """
        buf, offsets = _flat(texts)
        codes = np.asarray(codes, np.int64)
        rows, left = self.read_fast(buf, offsets, codes)
        if not left.any():
            return rows
        picked = np.flatnonzero(left)
        read = self.read_plain([buf[offsets[i] : offsets[i + 1]].tobytes().decode() for i in picked], codes[picked])
        return self._merged(rows, read, picked)

    def read_fast(self, buf: Bytes, offsets: Int64s, codes: Int64s) -> tuple[RedoRows, Mask]:
        """Read the statements of usual form, by kernels.

        :param buf: UTF-8; statement i is ``buf[offsets[i]:offsets[i + 1]]``
        :return: the rows; and a mask of those that :meth:`read_plain` has to read, which are null here
        """
        n = len(codes)
        left = np.zeros(n, np.uint8)
        needed_images = [image for image, code in ((BEFORE, INSERT), (AFTER, DELETE)) if (codes != code).any()]
        columns = {image: _ColumnBuffers(self._layout, n, int(offsets[-1] - offsets[0])) for image in needed_images}
        for lo in range(0, n, SPAN_ROWS):
            hi = min(lo + SPAN_ROWS, n)
            layout, spans = self._layout, self._spans
            split_rows(
                buf, offsets, codes, lo, hi, layout.heads, layout.head_ends, layout.names, layout.name_ends,
                *spans.arrays, left, spans.order,
            )  # fmt: skip
            for image, into in columns.items():
                arrays = (*spans.arrays, *into.kernel_arrays)
                convert_rows(buf, offsets, lo, hi, image, layout.parameters, *arrays, left)
        good = left == 0
        images = {
            image: into.build_image(self._layout, good & (codes != (INSERT if image == BEFORE else DELETE)))
            for image, into in columns.items()
        }
        return _rows(codes, images, np.zeros(n, np.bool_)), ~good

    def read_plain(self, texts: list[str], codes: npt.NDArray[Any]) -> RedoRows:
        """Read statements of any known form, one by one. Raises like :meth:`read`."""
        befores: list[dict[str, ParsedLiteral] | None] = []
        afters: list[dict[str, ParsedLiteral] | None] = []
        for text, code in zip(texts, codes, strict=True):
            statement = self._statement(text, int(code))
            befores.append(None if code == INSERT else statement.where)
            afters.append(None if code == DELETE else {**statement.where, **statement.new})
        images = {}
        for image, literals in ((BEFORE, befores), (AFTER, afters)):
            if any(row is not None for row in literals):
                images[image] = self._image(literals, texts)
        return _rows(np.asarray(codes, np.int64), images, np.ones(len(texts), np.bool_))

    def read_conditions(
        self, conditions: list[dict[str, ParsedLiteral]], texts: list[str]
    ) -> tuple[pa.StructArray, Mask]:
        """Return the rows that conditions of :mod:`.lob_piece_parser` name, and a mask of the values that they do not have.

        Raises like :meth:`read`.

        :param texts: their statements, for errors
        """
        for condition, text in zip(conditions, texts, strict=True):
            self.check_columns(condition, text)
        image = self._image([*conditions], texts)
        return image.values, image.unavailable

    def column_read(self, column: int) -> ColumnReadPlan:
        """Return the plan by which the values of a column are read."""
        return self._layout.columns[column]

    def values_set(self, text: str, code: int, names: Iterable[str]) -> dict[str, Any]:
        """Return the values that an insert or update sets in the named columns.

        The values are as :func:`..literal_converter.read_value` gives them.

        Columns that it does not set are not in the result. Raises like :meth:`read`.
        """
        statement = self._statement(text, code)
        values = {}
        for c, column in enumerate(self.schema.columns):
            if column.name in names and column.name in statement.new:
                read = self._layout.columns[c]
                try:
                    values[column.name] = read_value(statement.new[column.name], read.how, read.a, read.b)
                except UnreadableRedo as e:
                    raise self.build_unreadable_error(f"A value cannot be read: {e}.", text, column=column.name) from e
        return values

    # -- one by one -------------------------------------------------------------------------------------------------------

    def _statement(self, text: str, code: int) -> RedoStatement:
        try:
            statement = read_statement(text, relaxed=self._relaxed)
        except UnreadableRedo as e:
            raise self.build_unreadable_error(f"A redo statement cannot be read: {e}.", text, quotes="'" in text) from e
        if code not in (INSERT, DELETE, UPDATE) or statement.code != code:
            raise self.build_unreadable_error(
                f"The redo record has operation code {code}, but its statement is of another kind.", text
            )
        self._check(statement, text)
        return statement

    def _check(self, statement: RedoStatement, text: str) -> None:
        """Check that the statement names this table and its columns."""
        self.check_table(statement.owner, statement.table, text)
        self.check_columns({**statement.where, **statement.new}, text)

    def check_table(self, owner: str | None, name: str, text: str) -> None:
        """Check a table's name.

        :raises SchemaConflict: it is not the reader's table
        """
        id_ = self.schema.id
        if name != id_.name or owner not in (id_.namespace, None):
            raise self._conflict(f"A redo statement changes {owner}.{name} instead of {id_}.", text)

    def check_columns(self, named: Iterable[str], text: str) -> None:
        """Check names of columns.

        :raises SchemaConflict: the table does not have one of them
        """
        columns = {*self.schema.column_names, *self._layout.ignored}
        if unknown := [name for name in named if name not in columns]:
            stale = " LogMiner's dictionary did not know the table's columns." if _STALE.fullmatch(unknown[0]) else ""
            raise self._conflict(
                f"A redo statement has a column {unknown[0]!r} that {self.schema.id} does not have.{stale}", text
            )

    def _image(self, literals: list[dict[str, ParsedLiteral] | None], texts: list[str]) -> _Image:
        children, unavailable = [], []
        for column, read in zip(self.schema.columns, self._layout.columns, strict=True):
            values: list[Any] = []
            for row, text in zip(literals, texts, strict=True):
                try:
                    literal = None if row is None else row.get(column.name)
                    values.append(None if row is None else read_value(literal, read.how, read.a, read.b))
                except UnreadableRedo as e:
                    raise self.build_unreadable_error(
                        f"A value of column {column.name} cannot be read: {e}.", text
                    ) from e
            always_null = pa.types.is_null(read.raw)
            unavailable.append([v is UNAVAILABLE and not always_null for v in values])
            children.append(read.finish(pa.array([None if v is UNAVAILABLE else v for v in values], read.raw)))
        absent = pa.array([row is None for row in literals], pa.bool_())
        struct = pa.StructArray.from_arrays(children, fields=list(self._layout.type), mask=absent)
        return _Image(struct, np.array(unavailable, np.bool_).reshape(len(children), len(literals)))

    def build_unreadable_error(
        self, problem: str, text: str = "", *, column: str | None = None, quotes: bool = False
    ) -> CdcError:
        """Return the error for a statement that cannot be read.

        :param quotes: apostrophes that are not doubled may be the cause
        """
        relaxed = "set internal.log.mining.sql.relaxed.quote.detection=true, if apostrophes in texts are not doubled"
        excluded = f"exclude the column with column.exclude.list={escape_name(f'{self.schema.id}.{column}')}"
        return UnreadableValue(
            problem,
            where=f"{self.schema.id}{f'.{column}' if column else ''}{f': {_excerpt(text)}' if text else ''}",
            safe=_SAFE,
            remedy=excluded if column else relaxed if quotes and not self._relaxed else f"`{self._read_whole}`",
        )

    def _conflict(self, problem: str, text: str) -> CdcError:
        return SchemaConflict(
            problem, where=f"{self.schema.id}: {_excerpt(text)}", safe=_SAFE, remedy=f"`{self._read_whole}`"
        )

    # -- both -------------------------------------------------------------------------------------------------------------

    def _merged(self, fast: RedoRows, read: RedoRows, picked: npt.NDArray[np.intp]) -> RedoRows:
        """Return the rows, with those at the indices ``picked`` replaced by ``read``."""
        n = len(fast)
        take = np.arange(n)
        take[picked] = n + np.arange(len(picked))
        images = {}
        for image, a, b, masks in (
            (BEFORE, fast.before, read.before, (fast.unavailable_before, read.unavailable_before)),
            (AFTER, fast.after, read.after, (fast.unavailable_after, read.unavailable_after)),
        ):
            if a is None:
                continue
            other = pa.nulls(len(picked), a.type) if b is None else b
            unavailable = np.zeros((len(self.schema.columns), n), np.bool_)
            of_fast, of_plain = masks
            if of_fast is not None:
                unavailable |= of_fast
            if of_plain is not None:
                unavailable[:, picked] = of_plain
            images[image] = _Image(pa.concat_arrays([a, other]).take(pa.array(take)), unavailable)
        plain = np.zeros(n, np.bool_)
        plain[picked] = True
        rows = _rows(np.zeros(n, np.int64), images, plain)
        rows.op = fast.op
        return rows


def _rows(codes: Int64s, images: dict[int, _Image], plain: Mask) -> RedoRows:
    def mask(image: int) -> Mask | None:
        return images[image].unavailable if image in images and images[image].unavailable.any() else None

    def values(image: int) -> pa.StructArray | None:
        return images[image].values if image in images else None

    supported = np.where((codes >= INSERT) & (codes <= UPDATE), codes, 0)
    return RedoRows(_OPERATION[supported], values(BEFORE), values(AFTER), mask(BEFORE), mask(AFTER), plain)


def _excerpt(text: str) -> str:
    """Return the beginning of a statement, to find it again without showing all its values."""
    return text if len(text) <= 120 else f"{text[:120]}… ({len(text)} characters)"


def _flat(texts: pa.Array) -> tuple[Bytes, Int64s]:
    """Bytes and offsets of an array of statements.

    :raises UnreadableValue: they are not UTF-8
    """
    if texts.null_count:
        raise ValueError("a redo text is NULL")
    wide = (
        pa.large_binary()
        if pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type)
        else pa.large_string()
    )
    texts = texts.cast(wide)
    if wide == pa.large_binary():
        try:
            texts = texts.cast(pa.large_string())
        except pa.ArrowInvalid as e:
            raise UnreadableValue(
                "A redo text is not valid UTF-8.",
                safe="Nothing is lost: the batch was not written.",
                remedy="check the character set of the connection",
            ) from e
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    buf = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    if len(ends) and ends[-1] - ends[0] > MAX_BYTES:
        raise ValueError(f"{ends[-1] - ends[0]:,} bytes of redo texts are too many for one call")
    return buf, (ends if len(ends) else np.zeros(1, np.int64))


class _LiteralSpans:
    """Memory for the spans of literals, which ``split_rows`` writes and ``convert_rows`` reads."""

    def __init__(self, columns: int, rows: int) -> None:
        shape = (2, columns, rows)
        self.arrays = np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, np.uint8)
        self.order = np.empty(4_096, np.int64)


class _ColumnBuffers:
    """Column buffers for one image of ``n`` rows; untouched memory costs nothing."""

    def __init__(self, layout: KernelLayout, n: int, text_bytes: int) -> None:
        fixed, wide, variable = (max(count, 1) for count in layout.counts)
        # a number with a fixed scale may be longer than its literal, by its zeros
        room = max(text_bytes + n * (layout.widest + 4), 64)
        self.fixed = np.empty((fixed, n), np.int64)
        self.wide = np.zeros((wide, n if layout.counts[k.STORE_WIDE] else 1, 2), np.int64)
        self.ends = np.empty((variable, n), np.int64)
        self.data = np.empty((variable, room), np.uint8)
        self.filled = np.zeros(variable, np.int64)
        self.valid = np.zeros((max(len(layout.columns), 1), n), np.uint8)

    @property
    def kernel_arrays(self) -> tuple[Int64s, Int64s, Int64s, Bytes, Int64s, Bytes]:
        """The arrays in the order of the kernel's parameters."""
        return self.fixed, self.wide, self.ends, self.data, self.filled, self.valid

    def build_image(self, layout: KernelLayout, present: Mask) -> _Image:
        n = len(present)
        children = []
        unavailable = np.zeros((len(layout.columns), n), np.bool_)
        for c, read in enumerate(layout.columns):
            valid = self.valid[c]
            if not pa.types.is_null(read.raw):
                np.logical_and(valid == k.UNAVAILABLE, present, out=unavailable[c])
            children.append(read.finish(self._array(read, int(layout.parameters[c, 3]), (valid == k.VALUE) & present)))
        absent = n - int(np.count_nonzero(present))
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little")) if absent else None
        return _Image(pa.StructArray.from_buffers(layout.type, n, [bitmap], absent, children=children), unavailable)

    def _array(self, read: ColumnReadPlan, slot: int, valid: Mask) -> pa.Array:
        """Return a column as ``read.raw``, without a copy where the bytes are the same."""
        n, raw = len(valid), read.raw
        if read.how == k.NOT_READ:
            return pa.nulls(n, raw)
        nulls = n - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
        if read.store_kind == k.STORE_VARIABLE:
            offsets = np.zeros(n + 1, np.int32)
            offsets[1:] = self.ends[slot]
            data = pa.py_buffer(self.data[slot, : self.filled[slot]].copy())
            return pa.Array.from_buffers(raw, n, [bitmap, pa.py_buffer(offsets), data], nulls)
        if read.store_kind == k.STORE_WIDE:
            values: npt.NDArray[Any] = self.wide[slot]
        else:
            values = self.fixed[slot]
            if pa.types.is_decimal(raw):
                values = np.stack([values, values >> 63], axis=1)
            elif pa.types.is_date32(raw):
                values = values.astype(np.int32)
        return pa.Array.from_buffers(raw, n, [bitmap, pa.py_buffer(np.ascontiguousarray(values))], nulls)
