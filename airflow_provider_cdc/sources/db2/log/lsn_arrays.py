"""Many LSNs as arrays: as words that compare as their bytes do, and as texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

WORDS: Final = 2
"""Words that an LSN has at least: all LSNs of Db2 fit in 16 bytes. A longer one makes its arrays wider."""
_DIGITS: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_COLONS: Final = (4, 8)


@dataclass(frozen=True, slots=True, eq=False)
class LsnArray:
    """Some LSNs.

    :param words: ``uint64[n, words]``, big-endian words of the bytes, padded with zero bytes on the right
    :param lengths: ``uint8[n]``, how many bytes each has
    """

    words: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint8]

    @classmethod
    def from_bytes(cls, values: Sequence[bytes]) -> LsnArray:
        """LSNs as the driver gives them."""
        n, different = len(values), {*map(len, values)}
        longest = max(different, default=0)
        width = max(WORDS, -(-longest // 8))
        padded = np.zeros((n, width * 8), np.uint8)
        lengths = np.full(n, longest, np.uint8)
        if len(different) == 1:
            padded[:, :longest] = np.frombuffer(b"".join(values), np.uint8).reshape(n, longest)
        else:
            for row, value in enumerate(values):
                lengths[row] = len(value)
                padded[row, : len(value)] = np.frombuffer(value, np.uint8)
        return cls(padded.view(">u8").astype(np.uint64), lengths)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, part: slice | npt.NDArray[np.int64]) -> LsnArray:
        return LsnArray(self.words[part], self.lengths[part])

    def bytes_at(self, row: int) -> bytes:
        """Return an LSN of the array, as the database has it."""
        row = range(len(self))[row]
        whole: bytes = self.words[row].astype(">u8").tobytes()
        return whole[: int(self.lengths[row])]

    def to_unpadded_bytes(self, row: int) -> bytes:
        """Return an LSN of the array without zero bytes at its end: these compare as if all were padded."""
        return self.bytes_at(row).rstrip(b"\0")

    def pad_words(self, words: int) -> npt.NDArray[np.uint64]:
        """Return the words, with zeros on the right up to a number of words."""
        missing = words - self.words.shape[1]
        return np.pad(self.words, ((0, 0), (0, missing))) if missing > 0 else self.words

    def format_texts(self) -> pa.StringArray:
        """In the documented form: hexadecimal, with colons behind byte 4 and byte 8 (spec DB2-401)."""
        lengths = np.unique(self.lengths)
        if len(lengths) == 1:
            return _texts(self.words, int(lengths[0]))
        parts = [(np.flatnonzero(self.lengths == length), int(length)) for length in lengths]
        rows = np.concatenate([rows for rows, _ in parts]) if parts else np.empty(0, np.int64)
        texts = [_texts(self.words[rows], length) for rows, length in parts]
        joined = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
        return joined.take(pa.array(np.argsort(rows)))


def concatenate_lsns(parts: Sequence[LsnArray]) -> LsnArray:
    """LSNs of several arrays, one after the other."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.words.shape[1] for part in parts)
    return LsnArray(
        np.concatenate([part.pad_words(width) for part in parts]), np.concatenate([part.lengths for part in parts])
    )


def _texts(words: npt.NDArray[np.uint64], length: int) -> pa.StringArray:
    """Texts of LSNs that are equally long."""
    n = len(words)
    octets = words.astype(">u8").view(np.uint8).reshape(n, -1)
    cuts = [0, *(at for at in _COLONS if at < length), length]
    width = 2 * length + len(cuts) - 2
    data = np.full((n, width), ord(":"), np.uint8)
    for colons, (start, end) in enumerate(pairwise(cuts)):
        part = data[:, 2 * start + colons : 2 * end + colons]
        part[:] = _DIGITS[octets[:, start:end]].reshape(n, 2 * (end - start))
    offsets = np.arange(n + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(data))
