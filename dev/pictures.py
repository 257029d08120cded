"""Takes the screenshots that pages of the documentation show into ``docs/pictures``, as small as they get: ``python -m dev.pictures FOLDER``.

A picture of a page has few colours: with a palette of 256 it is a third as large, and looks the same. ``dev/docs --screenshots`` runs this.
"""

import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dev import paths

DOCS = paths.ROOT / "docs"
PICTURES = DOCS / "pictures"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}
"""Type of colours → bytes of a point: those that browsers write."""


def list_shown_pictures() -> set[str]:
    """Files that pages show."""
    return {name for page in DOCS.rglob("*.md") for name in re.findall(r"pictures/([\w.-]+\.png)\)", page.read_text())}


def smaller(png: bytes) -> bytes:
    """The picture with a palette.

    :raises ValueError: it is not as browsers write pictures
    """
    points = _points(png)
    colours, which = np.unique(points.reshape(-1, 3), axis=0, return_inverse=True)
    often = np.bincount(which.ravel(), minlength=len(colours))
    palette = colours[np.argsort(-often, kind="stable")[:256]]
    distance = ((colours[:, None, :].astype(np.int32) - palette[None, :, :]) ** 2).sum(axis=2)
    indexes = distance.argmin(axis=1)[which.ravel()].astype(np.uint8).reshape(points.shape[:2])
    height, width = indexes.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), indexes], axis=1)  # each line begins with its filter: none
    return _SIGNATURE + b"".join([
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)), _chunk(b"PLTE", palette.tobytes()),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), _chunk(b"IEND", b""),
    ])  # fmt: skip


def _points(png: bytes) -> "np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]":
    """Red, green and blue of each point, by line and column."""
    chunks = list(_chunks(png))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or kind not in _CHANNELS or interlaced:
        raise ValueError(f"a picture of depth {depth} and type {kind} cannot be read")
    channels = _CHANNELS[kind]
    data = np.frombuffer(zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT")), np.uint8)
    lines = data.reshape(height, 1 + width * channels)
    above = np.zeros((width, channels), np.uint8)
    found = np.empty((height, width, channels), np.uint8)
    for number, line in enumerate(lines):
        above = found[number] = _unfilter_line(int(line[0]), line[1:].reshape(width, channels), above)
    return found[:, :, :3]


def _unfilter_line(how: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    """A line as it was, from what is written of it (PNG specification, "Filtering")."""
    if how == 0:
        return line
    if how == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if how == 2:
        return line + above
    left = upper_left = np.zeros(line.shape[1], np.int32)
    found = np.empty_like(line)
    for column, (written, upper) in enumerate(zip(line.astype(np.int32), above.astype(np.int32), strict=True)):
        if how == 3:
            guess = (left + upper) // 2
        else:
            near = np.abs([upper - upper_left, left - upper_left, left + upper - 2 * upper_left])
            guess = np.where(
                (near[0] <= near[1]) & (near[0] <= near[2]), left, np.where(near[1] <= near[2], upper, upper_left)
            )
        left, upper_left = (written + guess) % 256, upper
        found[column] = left
    return found


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not png.startswith(_SIGNATURE):
        raise ValueError("it is no PNG")
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def main(folder: Path) -> int:
    """Take what pages show; what none shows any more is removed."""
    PICTURES.mkdir(exist_ok=True)
    expected = list_shown_pictures()
    for file in PICTURES.iterdir():
        if file.name not in expected:
            file.unlink()
    missing = sorted(name for name in expected if not (folder / name).exists())
    for name in sorted(expected - set(missing)):
        (PICTURES / name).write_bytes(smaller((folder / name).read_bytes()))
    for name in missing:
        print(f"No test has taken {name}.", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
