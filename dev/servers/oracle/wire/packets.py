"""TNS packets on a socket, and the integers and length-prefixed fields inside them."""

import select
import socket
import struct

CONNECT, ACCEPT, REFUSE, DATA, MARKER = 1, 2, 4, 6, 12
MARKER_BREAK, MARKER_RESET, MARKER_INTERRUPT = 1, 2, 3
PROTOCOL_VERSION = 317
"""The newest version without out-of-band checks, fast logon and end-of-response marks."""
LARGEST_SDU = 65535
END_OF_FILE = 0x40
LONG_LENGTH = 0xFE
SHORT_LENGTH_LIMIT = 252
CHUNK = 32767


class ClientClosed(Exception):
    """The client has gone."""


class ClientInterrupt(Exception):
    """The client has sent a break."""


def ub(number: int) -> bytes:
    """An unsigned integer: its length in bytes, then the bytes, big end first."""
    if number == 0:
        return b"\0"
    if number < 256:
        return bytes((1, number))
    size = (number.bit_length() + 7) // 8
    return bytes((size,)) + number.to_bytes(size, "big")


def encode_sized(data: bytes | None) -> bytes:
    """Bytes with their length before them, in chunks when they are long; nothing and NULL are the same."""
    if not data:
        return b"\0"
    if len(data) <= SHORT_LENGTH_LIMIT:
        return bytes((len(data),)) + data
    chunks = (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
    return b"\xfe" + b"".join(ub(len(chunk)) + chunk for chunk in chunks) + b"\0"


def encode_counted(data: bytes | str) -> bytes:
    """Bytes with a count before the length-prefixed form."""
    raw = data.encode() if isinstance(data, str) else data
    return ub(len(raw)) + (encode_sized(raw) if raw else b"")


class IncompleteMessage(Exception):
    """The message continues in the next packet."""


class Reader:
    """Reads fields of a message."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def u8(self) -> int:
        if self.at >= len(self.data):
            raise IncompleteMessage
        self.at += 1
        return self.data[self.at - 1]

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise IncompleteMessage
        part, self.at = self.data[self.at : end], end
        return part

    def ub(self) -> int:
        return int.from_bytes(self.raw(self.u8() & 0x7F), "big")

    def sized(self) -> bytes | None:
        size = self.u8()
        if size in (0, 255):
            return None
        if size != LONG_LENGTH:
            return self.raw(size)
        parts = []
        while chunk := self.ub():
            parts.append(self.raw(chunk))
        return b"".join(parts)

    def counted(self) -> bytes:
        return (self.sized() or b"") if self.ub() else b""


class Connection:
    """A client's socket, packet by packet."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = b""
        self._large = False
        self.sdu = 8192

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                more = self._socket.recv(262144)
            except OSError:
                raise ClientClosed from None
            if not more:
                raise ClientClosed
            self._buffer += more
        part, self._buffer = self._buffer[:size], self._buffer[size:]
        return part

    def receive(self) -> tuple[int, bytes]:
        """The next packet: its type and its body."""
        head = self._exactly(8)
        size = int.from_bytes(head[:4] if self._large else head[:2], "big")
        return head[4], self._exactly(size - 8)

    def send(self, kind: int, body: bytes) -> None:
        size = len(body) + 8
        head = struct.pack(">I", size) if self._large else struct.pack(">HH", size, 0)
        self._write(head + bytes((kind, 0, 0, 0)) + body)

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            raise ClientClosed from None

    def send_data(self, message: bytes) -> None:
        """Send one answer, cut into packets of the agreed size."""
        room = self.sdu - 10
        view = memoryview(message)
        parts: list[bytes | memoryview] = []
        for start in range(0, len(message), room):
            part = view[start : start + room]
            parts.append(struct.pack(">IBBHH", len(part) + 10, DATA, 0, 0, 0))
            parts.append(part)
        self._write(b"".join(parts))

    # opening

    def accept(self, sdu: int) -> None:
        """Agree on the protocol version and on the packet size; later packets carry a four-byte length."""
        self.sdu = min(sdu, LARGEST_SDU) or 8192
        body = struct.pack(">HHHHHHH", PROTOCOL_VERSION, 0, self.sdu, self.sdu, 1, 0, 45)
        self.send(ACCEPT, body + b"\0" + bytes(9) + struct.pack(">I", self.sdu))
        self._large = True

    def refuse(self, error: int) -> None:
        """Refuse the client with an error number, as a listener that does not know the service."""
        text = f"(DESCRIPTION=(TMP=)(VSNNUM=0)(ERR={error})(ERROR_STACK=(ERROR=(CODE={error})(EMFI=4))))".encode()
        self.send(REFUSE, bytes((0x22, 0)) + struct.pack(">H", len(text)) + text)

    # breaks

    def answer_break(self) -> None:
        """The exchange of markers that ends a broken call; the error message follows it."""
        self.send(MARKER, bytes((1, 0, MARKER_BREAK)))
        while True:
            kind, body = self.receive()
            if kind == MARKER and body[2] == MARKER_RESET:
                break
        self.send(MARKER, bytes((1, 0, MARKER_RESET)))

    def check_for_break(self) -> None:
        """During a long wait: raises when the client has sent a break or has gone."""
        while self._buffer or select.select([self._socket], [], [], 0)[0]:
            kind, _ = self.receive()
            if kind == MARKER:
                raise ClientInterrupt
            raise ClientClosed
