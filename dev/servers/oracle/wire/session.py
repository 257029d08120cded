"""A client: answers the messages of the driver with the results of the engine's session."""

import logging
import re
import secrets
import struct
from collections.abc import Callable
from typing import Protocol

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.wire import codecs, packets
from dev.servers.oracle.wire.auth import SERVER_VERSION, Logon, read_logon
from dev.servers.oracle.wire.lobs import Lobs
from dev.servers.oracle.wire.packets import (
    ClientClosed,
    ClientInterrupt,
    Connection,
    IncompleteMessage,
    Reader,
    encode_sized,
)
from dev.servers.oracle.wire.statements import Backend, Statements, end_of_call

LOG = logging.getLogger("oracle.wire")

FIELD_VERSION_12_1 = 7
STRINGS_OF_32K = 0x04
SERVICE = re.compile(r"\((?:SERVICE_NAME|SID)=([^)]*)\)", re.IGNORECASE)


class Door(Protocol):
    """The door that checks clients and lets them in."""

    def knows_service(self, name: str) -> bool: ...
    def password(self, user: str) -> str | None: ...
    def open(self, user: str, service: str, check: Callable[[], None]) -> Backend: ...


class Session:
    """Runs until the client leaves."""

    def __init__(self, connection: Connection, door: Door) -> None:
        self._connection = connection
        self._door = door
        self._backend: Backend | None = None
        self._logon: Logon | None = None
        self._statements: Statements | None = None
        self._lobs = Lobs()
        self._service = ""

    def run(self) -> None:
        """Serve the client."""
        try:
            if self._open():
                while self._one_call():
                    pass
        except ClientClosed:
            pass
        except Exception:
            LOG.exception("a session ended with an unexpected error")
        finally:
            if self._backend:
                self._backend.close()
            self._connection.close()

    def _open(self) -> bool:
        kind, body = self._connection.receive()
        if kind != packets.CONNECT:
            return False
        sdu = struct.unpack(">H", body[6:8])[0]
        size, start = struct.unpack(">HH", body[16:20])
        large = struct.unpack(">I", body[50:54])[0] if start >= 66 else sdu
        text = body[start - 8 :]
        if len(text) < size:
            text = self._connection.receive()[1][2:]
        match = SERVICE.search(text[:size].decode())
        self._service = match[1] if match else ""
        if not self._door.knows_service(self._service):
            self._connection.refuse(12514)
            return False
        self._connection.accept(large or sdu)
        return True

    def _one_call(self) -> bool:
        kind, body = self._connection.receive()
        if kind == packets.MARKER:
            self._connection.answer_break()
            self._connection.send_data(self._error(OraError(1013)))
            return True
        if kind != packets.DATA or (body[1] & packets.END_OF_FILE and len(body) == 2):
            return kind != packets.DATA
        message = body[2:]
        while True:
            try:
                answer = self._message(Reader(message))
                break
            except IncompleteMessage:
                message += self._connection.receive()[1][2:]
            except ClientInterrupt:
                self._connection.answer_break()
                answer = self._error(OraError(1013))
                break
        self._connection.send_data(answer)
        return True

    # messages

    def _message(self, reader: Reader) -> bytes:
        kind = reader.u8()
        if kind == 1:
            return self._protocol()
        if kind == 2:
            return b"\x02\0\0"
        while kind == 17:
            self._piggyback(reader)
            kind = reader.u8()
        if kind != 3:
            raise OraError(900, f"message {kind}")
        function = reader.u8()
        reader.u8()
        handler = self._functions().get(function)
        try:
            if handler is None:
                raise OraError(900, f"call {function}")
            return handler(reader)
        except OraError as error:
            return self._error(error)
        except (ClientClosed, ClientInterrupt, IncompleteMessage):
            raise
        except Exception as error:
            LOG.exception("call %d failed", function)
            return self._error(OraError(600, repr(error)))

    def _functions(self) -> dict[int, Callable[[Reader], bytes]]:
        return {
            118: self._first_logon, 115: self._second_logon, 94: lambda message: self._running.execute(message), 5: lambda message: self._running.fetch(message), 4: lambda message: self._running.execute_again(message),
            78: lambda message: self._running.execute_again(message), 96: self._lob, 14: self._commit, 15: self._rollback, 147: self._nothing, 9: self._logoff,
        }  # fmt: skip

    def _protocol(self) -> bytes:
        compiled = bytearray(45)
        compiled[7] = FIELD_VERSION_12_1
        running = bytearray(8)
        running[6] = STRINGS_OF_32K
        charsets = bytes(9) + struct.pack(">H", codecs.UTF16)
        head = b"\x01\x06\0oracle test server\0" + struct.pack("<H", codecs.UTF8) + b"\x01" + struct.pack("<H", 0)
        return (
            head
            + struct.pack(">H", len(charsets))
            + charsets
            + encode_sized(bytes(compiled))
            + encode_sized(bytes(running))
        )

    def _piggyback(self, reader: Reader) -> None:
        function = reader.u8()
        reader.u8()
        if function == 105:
            reader.u8()
            for _ in range(reader.ub()):
                self._running.forget(reader.ub())
        elif function == 152:
            reader.u8()
            reader.ub()
            self._session.set_schema((reader.sized() or b"").decode())
        elif function == 135:
            _skip_end_to_end(reader)
        elif function == 96:
            _skip_free_lobs(reader)
        else:
            raise OraError(900, f"piggyback {function}")

    @property
    def _running(self) -> Statements:
        if self._statements is None:
            raise OraError(1017)
        return self._statements

    @property
    def _session(self) -> Backend:
        if self._backend is None:
            raise OraError(1017)
        return self._backend

    def _error(self, error: OraError | None = None) -> bytes:
        return end_of_call(error, in_transaction=bool(self._backend and self._backend.in_transaction))

    # logon

    def _first_logon(self, reader: Reader) -> bytes:
        user, _ = read_logon(reader)
        self._logon = Logon(user.upper(), self._door.password(user.upper()))
        return self._logon.challenge()

    def _second_logon(self, reader: Reader) -> bytes:
        _, values = read_logon(reader)
        if self._logon is None:
            raise OraError(1017)
        facts = {
            "AUTH_VERSION_NO": str(SERVER_VERSION), "AUTH_SESSION_ID": "1", "AUTH_SERIAL_NUM": str(secrets.randbelow(60000)),
            "AUTH_SC_DBUNIQUE_NAME": self._service.upper(), "AUTH_SC_SERVICE_NAME": self._service,
            "AUTH_INSTANCENAME": self._service.upper(), "AUTH_MAX_OPEN_CURSORS": "300", "AUTH_MAX_IDEN_LENGTH": "128",
        }  # fmt: skip
        answer = self._logon.verify(values, facts)
        if answer is None:
            raise OraError(1017)
        self._backend = self._door.open(self._logon.user, self._service, self._connection.check_for_break)
        self._statements = Statements(self._backend, self._lobs)
        return answer

    # the rest

    def _lob(self, reader: Reader) -> bytes:
        return self._lobs.call(reader) + self._error()

    def _commit(self, reader: Reader) -> bytes:
        self._session.commit()
        return self._error()

    def _rollback(self, reader: Reader) -> bytes:
        self._session.rollback()
        return self._error()

    def _logoff(self, reader: Reader) -> bytes:
        """The session is gone when the client gets the answer."""
        backend, self._backend = self._backend, None
        if backend:
            backend.close()
        return self._error()

    def _nothing(self, reader: Reader) -> bytes:
        return self._error()


def _skip_end_to_end(reader: Reader) -> None:
    reader.raw(2)
    reader.ub()
    sizes = []
    for _ in range(3):
        reader.u8()
        sizes.append(reader.ub())
    reader.u8()
    reader.ub()
    reader.u8()
    reader.ub()
    reader.u8()
    sizes.append(reader.ub())
    for _ in range(2):
        reader.u8()
        reader.ub()
    reader.u8()
    sizes.append(reader.ub())
    for size in sizes:
        if size:
            reader.sized()


def _skip_free_lobs(reader: Reader) -> None:
    reader.u8()
    total = reader.ub()
    reader.u8()
    for _ in range(3):
        reader.ub()
    reader.raw(3)
    reader.ub()
    reader.u8()
    reader.ub()
    reader.ub()
    reader.ub()
    reader.u8()
    for _ in range(3):
        reader.u8()
        reader.ub()
    reader.raw(total)
