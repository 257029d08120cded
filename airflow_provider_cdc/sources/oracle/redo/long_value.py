"""A long value while it is assembled from pieces."""

from __future__ import annotations

import bisect
from typing import Final

from airflow_provider_cdc.sources.oracle.redo.parsed_literal import UnreadableRedo

MAX_BYTES: Final = (1 << 31) - 1
"""Greatest size of a value in the change log."""
_MAX_HOLE: Final = 16 << 20
"""Greatest gap between two pieces of a value that is not known as a whole; with a larger gap the value is unavailable."""
_UTF16, _UTF32 = "utf-16-le", "utf-32-le"


class LongValue:
    """Applies writes, trims and erasures in their order.

    Offsets and lengths count units: bytes of a BLOB; UTF-16 units of text, as ``DBMS_LOB`` does, or characters if the lengths in the
    log show that it counts them. Text is kept as ASCII, UTF-16 or UTF-32.

        >>> value = LongValue("")
        >>> value.write("Hello world", 0)
        >>> value.trim(5)
        >>> bytes(value.to_bytes())
        b'Hello'

    :param base: the old value; ``None`` if it is not known
    :param text: it is text, not bytes
    :param fresh: a statement sets the whole value: every unit has to be written once; anything else is an error in the log
    :ivar unit: bytes per unit
    :ivar length: length in units; ``None`` = not known
    :ivar covered: ascending, disjoint ranges ``[begin, end]`` of the units that are known
    :ivar touched: it was changed
    """

    def __init__(self, base: str | bytes | None, *, text: bool = True, fresh: bool = False) -> None:
        self.text, self.fresh = text, fresh
        self.unit = 1
        self.length: int | None = None
        self.covered: list[list[int]] = []
        self.touched = False
        self._lost = False
        self._counts = ""
        self._data = bytearray()
        if base is not None:
            self.length = 0
            self.write(base, 0)
            self.touched = False

    def copy(self) -> LongValue:
        other = LongValue(None, text=self.text, fresh=self.fresh)
        other.unit, other.length, other.touched = self.unit, self.length, self.touched
        other.covered = [[*stretch] for stretch in self.covered]
        other._lost, other._counts, other._data = self._lost, self._counts, bytearray(self._data)
        return other

    # -- changes ----------------------------------------------------------------------------------------------------------

    def write(self, data: str | bytes, at: int, logged_length: int | None = None) -> None:
        """Write ``data`` at the offset ``at``, which counts from 0.

        :param logged_length: the length of ``data`` in the log, in units
        :raises UnreadableRedo: it contradicts earlier pieces
        """
        if isinstance(data, str) is not self.text:
            raise UnreadableRedo(f"a piece of {'bytes' if self.text else 'text'} is written to a value of another kind")
        self.touched = True
        raw = self._encoded(data, logged_length)
        end = at + len(raw) // self.unit
        if self.fresh and self._has_known_unit(at, end):
            raise UnreadableRedo(f"characters or bytes {at + 1} to {end} are written a second time")
        if self.length is not None and at > self.length and not self.fresh:
            self._fill(self.length, at)
        self._put(at, raw)
        if self.length is not None:
            self.length = max(self.length, end)

    def trim(self, length: int) -> None:
        """Truncate the value to ``length`` units.

        :raises UnreadableRedo: it is shorter
        """
        self.touched = True
        if self.length is not None and length > self.length:
            raise UnreadableRedo(f"a value of {self.length} characters or bytes is trimmed to {length}")
        self.length = length
        if length == 0:
            self._lost = False
        if self._lost:
            return
        del self._data[length * self.unit :]
        while self.covered and self.covered[-1][0] >= length:
            self.covered.pop()
        if self.covered:
            self.covered[-1][1] = min(self.covered[-1][1], length)

    def erase(self, at: int, length: int) -> None:
        """Overwrite ``length`` units from the offset ``at`` on with blanks or zeros, up to the end of the value."""
        self.touched = True
        if self.fresh:
            raise UnreadableRedo("a part of it is erased during the write")
        if self.length is not None:
            self._fill(at, min(at + length, self.length))
        elif length > _MAX_HOLE:
            self._lost = True
        else:
            self._fill(at, at + length)

    # -- content ----------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes | bytearray | None:
        """Return the value as UTF-8 or bytes; ``None`` if not all of it is known.

        :raises UnreadableRedo: the text ends in the middle of a character
        """
        if self._lost or self.length is None or self.length != self.known_prefix_length:
            return None
        if self.unit == 1:
            return self._data
        try:
            text = self._data.decode(_UTF16 if self.unit == 2 else _UTF32)
        except UnicodeDecodeError as e:
            raise UnreadableRedo("the pieces of a text split a character") from e
        return text.encode()

    @property
    def known_prefix_length(self) -> int:
        """Number of units that are known without a gap from the first on."""
        return self.covered[0][1] if self.covered and self.covered[0][0] == 0 else 0

    @property
    def is_contiguous(self) -> bool:
        """Check whether the known units have no gap, and begin with the first."""
        return len(self.covered) <= 1 and (not self.covered or self.covered[0][0] == 0)

    def read_known_range(self) -> tuple[int, str | bytes]:
        """Offset and data of the only known range."""
        ((begin, end),) = self.covered
        raw = bytes(self._data[begin * self.unit : end * self.unit])
        return begin, raw.decode({1: "ascii", 2: _UTF16, 4: _UTF32}[self.unit]) if self.text else raw

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _encoded(self, data: str | bytes, logged_length: int | None) -> bytes:
        if isinstance(data, bytes):
            return data
        if data.isascii() and self.unit == 1:
            return data.encode("ascii")
        try:
            wide = data.encode(_UTF16)
        except UnicodeEncodeError as e:
            raise UnreadableRedo("a piece contains only half of a character") from e
        self._recode(2)
        if len(wide) // 2 != len(data):
            counts = "" if logged_length is None else "characters" if logged_length == len(data) else "units"
            if counts and self._counts not in ("", counts):
                raise UnreadableRedo("characters beyond the basic multilingual plane are counted inconsistently")
            self._counts = counts or self._counts
            if counts == "characters":
                self._recode(4)
        return wide if self.unit == 2 else data.encode(_UTF32)

    def _recode(self, unit: int) -> None:
        """Change the encoding to wider units."""
        if unit <= self.unit:
            return
        if unit == 4 and any(0xD800 <= u < 0xE000 for u in memoryview(self._data).cast("H")):
            before = self._data.decode(_UTF16)
            if not self.is_contiguous or (self.length is not None and self.length != self.known_prefix_length):
                raise UnreadableRedo("characters beyond the basic multilingual plane are counted inconsistently")
            self.covered = [[0, len(before)]] if before else []
            self.length = None if self.length is None else len(before)
            self._data = bytearray(before.encode(_UTF32))
        else:
            text = self._data.decode("ascii" if self.unit == 1 else _UTF16)
            self._data = bytearray(text.encode(_UTF16 if unit == 2 else _UTF32))
        self.unit = unit

    def _fill(self, at: int, end: int) -> None:
        """Write blanks or zeros, as ``DBMS_LOB`` does where nothing was written."""
        if end > MAX_BYTES // self.unit:
            raise UnreadableRedo(f"a value extends to {end}, which exceeds the limit of the change log")
        if at < end:
            blank = b"\0" if not self.text else " ".encode({1: "ascii", 2: _UTF16, 4: _UTF32}[self.unit])
            self._put(at, blank * (end - at))

    def _put(self, at: int, raw: bytes) -> None:
        end = at + len(raw) // self.unit
        have = len(self._data) // self.unit
        if at - have > _MAX_HOLE:
            self._lost = True
        if self._lost:
            return
        if end > MAX_BYTES // self.unit:
            raise UnreadableRedo(f"a value extends to {end}, which exceeds the limit of the change log")
        if at > have:
            self._data += (b"\0" if not self.text or self.unit > 1 else b" ") * ((at - have) * self.unit)
        if at >= have:
            self._data += raw
        else:
            self._data[at * self.unit : end * self.unit] = raw
        self._cover(at, end)

    def _cover(self, at: int, end: int) -> None:
        if at >= end:
            return
        if self.covered and self.covered[-1][1] == at:
            self.covered[-1][1] = end
            return
        lo = bisect.bisect_left(self.covered, at, key=lambda s: s[1])
        hi = bisect.bisect_right(self.covered, end, key=lambda s: s[0])
        if lo < hi:
            at, end = min(at, self.covered[lo][0]), max(end, self.covered[hi - 1][1])
        self.covered[lo:hi] = [[at, end]]

    def _has_known_unit(self, at: int, end: int) -> bool:
        """Check whether any of these units is known."""
        i = bisect.bisect_right(self.covered, at, key=lambda s: s[1])
        return i < len(self.covered) and self.covered[i][0] < end


def assemble_document(parts: list[str | bytes | None], *, text: bool, xml: bool) -> bytes | None:
    """Return an XML document or a long string, from its consecutive pieces; as bytes or UTF-8. ``None`` = NULL.

    :param text: it is of a text column; its pieces may still be bytes
    :param xml: it is an XML document
    :raises UnreadableRedo: the pieces are missing, mixed, or not text
    """
    if not parts:
        raise UnreadableRedo("it has no pieces")
    if parts == [None]:
        return None
    if all(isinstance(part, str) for part in parts) and text:
        data = "".join(part for part in parts if isinstance(part, str)).encode()
    elif all(isinstance(part, bytes) for part in parts):
        data = b"".join(part for part in parts if isinstance(part, bytes))
        if text:
            _check_text(data)
    else:
        raise UnreadableRedo("its pieces have different types")
    if xml and not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        raise UnreadableRedo("it is not the text of an XML document")
    return data or None


def _check_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as e:
        raise UnreadableRedo("its bytes are not UTF-8") from e
    if b"\0" in data:
        raise UnreadableRedo("its bytes are not a text")
