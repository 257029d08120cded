"""Between IBM's driver and Derby: lets the unchanged driver talk to an unmodified engine, and sees each statement and commit.

The edits, and why:

* ``ACCRDB.PRDID``: Derby refuses clients that are not its own; as the old ``DNC10030`` it is asked for no extensions.
* ``ACCRDB.TRGDFTRT``: off; Derby nests two fields of its reply wrongly otherwise, and the driver cannot read them.
* ``SECCHK.USRID``: a name of this connection's own, so that the engine's table of transactions distinguishes connections.
* ``DSCSQLSTT.QRYINSID``: left out; Derby does not know the parameter.
* ``SQLSTT``: the statement in Derby's words (:mod:`dev.servers.db2.statements.dialect`), or what the server answers instead.
* ``SQLCARD``: Db2's SQLCODE and SQLSTATE, and tokens short enough for the driver.

A statement that fails because Derby waited too long for a lock is tried again until the session's own lock timeout is over.
A connection whose driver sends arrays of parameters is closed: what it sends then is malformed.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Protocol

from dev.servers.db2.errors import DB2_ERRORS, DERBYS_LOCK_TIMEOUT, REASONS, SEPARATOR, Db2Error
from dev.servers.db2.log import positions
from dev.servers.db2.statements import client_statements
from dev.servers.db2.wire import drda
from dev.servers.db2.wire.drda import Card, Frame, NotDrda

LOG = logging.getLogger("db2.shim")
RECEIVE = 1 << 16
LONGEST_TOKENS = 70
"""What the driver takes of tokens; Derby sends up to 2,400 bytes."""
DERBYS_SEPARATOR = b"\x14"
OLD_CLIENT = b"DNC10030"
FAILING = "THIS STATEMENT FAILS"
"""What the engine is given in place of a refused statement; the answer is then replaced."""
FAILING_PROCEDURE = "DB2LOG.FAILING"
REPLAYED = {drda.EXCSQLIMM, drda.EXCSQLSTT, drda.OPNQRY, drda.PRPSQLSTT}


class Database(client_statements.Server, Protocol):
    """The part of the server that connections use."""

    def password(self, user: str) -> str | None: ...
    def ensure_schema(self, user: str) -> None: ...
    def structure_changed(self, plans: list[client_statements.Plan], *, committed: bool) -> None: ...
    def committed(self) -> None: ...
    @property
    def lock_timeout(self) -> float | None: ...
    def register(self, name: str, session: Connection) -> None: ...
    def unregister(self, name: str) -> None: ...


@dataclass
class Login:
    """The name and password that a client logs on with."""

    user: str = ""
    password: str = ""
    raw: bool = False
    """A connection of the server itself: its statements are Derby's already."""


@dataclass
class Chain:
    """A request that the driver has sent, until it has its answer."""

    requests: list[Frame] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    codes: set[int] = field(default_factory=set)
    sent_at: float = 0.0
    held: list[bytes] = field(default_factory=list)
    refused: Db2Error | None = None
    timed_out: bool = False
    committed: bool = False
    rolled_back: bool = False

    @property
    def replayable(self) -> bool:
        return bool(self.codes & REPLAYED) and drda.CNTQRY not in self.codes


class Shim:
    """Lets clients in at one port."""

    def __init__(self, database: Database, port: int, engine: tuple[str, int], secret: str) -> None:
        self._database, self._engine, self._secret = database, engine, secret
        self._count = 0
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.hold = threading.Event()
        """Set: new connections of others than the server wait."""

    def start(self) -> None:
        """Begin to let clients in."""
        threading.Thread(target=self._accept, name="shim", daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            try:
                engine = socket.create_connection(self._engine)
            except OSError:
                LOG.exception("the engine does not answer")
                client.close()
                continue
            for side in (client, engine):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._count += 1
            Connection(self._database, client, engine, self._secret, self._count).start()


class Connection(threading.Thread):
    """A connection of a driver: a request, its answer, a request."""

    def __init__(
        self, database: Database, client: socket.socket, engine: socket.socket, secret: str, number: int
    ) -> None:
        super().__init__(name=f"connection-{number}", daemon=True)
        self._database, self._client, self._engine, self._secret, self._number = (
            database,
            client,
            engine,
            secret,
            number,
        )
        self._login = Login()
        self._chain = Chain()
        self._incoming = Chain()
        self._plans: list[client_statements.Plan] = []
        self._has_schema = False
        self._package: bytes | None = None
        self.schema = ""
        self._lock_timeout: float | None = database.lock_timeout

    # who it is

    @property
    def user(self) -> str:
        """The user that is logged on."""
        return self._login.user

    @property
    def label(self) -> str:
        """The engine's name for the user of this connection."""
        return f"{self._login.user}#{self._number}"

    @property
    def changes_structure(self) -> bool:
        """True if the open transaction has changed structure."""
        return any(plan.structure for plan in self._plans)

    @property
    def default_lock_timeout(self) -> float | None:
        """LOCKTIMEOUT of the database."""
        return self._database.lock_timeout

    # life

    def run(self) -> None:
        """Pass on until one side has closed."""
        requests, replies = drda.Reader(), drda.Reader()
        try:
            while True:
                readable, _, _ = select.select([self._client, self._engine], [], [])
                if self._engine in readable:
                    data = _receive_bytes(self._engine)
                    if not data:
                        return
                    for raw, frame in replies.feed(data):
                        self._reply(raw, frame)
                elif self._client in readable:
                    data = _receive_bytes(self._client)
                    if not data:
                        return
                    for _, frame in requests.feed(data):
                        self._request(frame)
        except NotDrda as error:
            LOG.warning("%s sends what is no DRDA (an array of parameters?): %s", self.label, error)
        except OSError as error:
            LOG.debug("%s: %s", self.label, error)
        except Exception:
            LOG.exception("%s", self.label)
        finally:
            self._database.unregister(self.label)
            for side in (self._client, self._engine):
                side.close()

    # requests

    def _request(self, frame: Frame) -> None:
        chain = self._incoming
        frame = self._edited_request(frame, chain)
        chain.requests.append(frame)
        chain.codes.add(frame.code)
        if frame.chained:
            return
        if drda.EXCSQLSTT in chain.codes and not self._login.raw:
            self._call(chain)
        self._incoming, self._chain = Chain(), chain
        chain.frames = [request.encoded() for request in chain.requests]
        if chain.codes & REPLAYED and not self._has_schema and not self._login.raw:
            self._set_schema()
        chain.sent_at = time.monotonic()
        self._engine.sendall(b"".join(chain.frames))

    def _edited_request(self, frame: Frame, chain: Chain) -> Frame:
        if frame.code == drda.SECCHK:
            return self._logging_on(frame)
        if frame.code == drda.ACCRDB:
            values = [(code, _access(code, value)) for code, value in drda.parameters(frame.body)]
            return frame.replaced(drda.encode_parameters(values))
        if frame.code == drda.DSCSQLSTT:
            kept = [(code, value) for code, value in drda.parameters(frame.body) if code != drda.QRYINSID]
            return frame.replaced(drda.encode_parameters(kept))
        if frame.code in REPLAYED and self._package is None:
            self._package = dict(drda.parameters(frame.body)).get(drda.PKGNAMCSN)
        if frame.code == drda.SQLSTT and not self._login.raw and frame.body[:1] == b"\0":
            return frame.replaced(drda.with_statement(frame.body, self._statement(drda.statement(frame.body), chain)))
        return frame

    def _logging_on(self, frame: Frame) -> Frame:
        values = dict(drda.parameters(frame.body))
        if drda.USRID not in values:
            return frame
        user, password = _text(values[drda.USRID]), _text(values.get(drda.PASSWORD, b""))
        self._login = Login(user.upper(), password, raw=password == self._secret)
        self.schema = self._login.user
        name = (user if self._login.raw else self.label).upper()
        encode = "cp500" if _is_ebcdic(values[drda.USRID]) else "utf-8"
        values[drda.USRID] = (name if self._login.raw else f'"{name}"').encode(encode)
        if not self._login.raw:
            self._database.register(self.label, self)
        return frame.replaced(drda.encode_parameters(list(values.items())))

    def _statement(self, text: str, chain: Chain) -> str:
        """Return the statement that the engine gets for a client's statement."""
        try:
            plan = client_statements.plan_statement(text, self, self._database)
        except Db2Error as error:
            LOG.info("%s refused: %s (%s)", self.label, error, text[:200])
            chain.refused = error
            return FAILING
        except Exception as error:
            LOG.exception("%s: the server failed at: %s", self.label, text[:1000])
            # of what the server itself wanted to lock for the statement, or of a sequence that too many wanted at once
            locked = any(word in str(error) for word in ("SQL0911N", "X0Y84"))
            why = str(error).rpartition("[IBM][CLI Driver]")[2].strip()  # a reply has room for 70 characters
            chain.refused = (
                Db2Error(-911, "40001", "68") if locked else Db2Error(-901, "58004", f"the test server failed: {why}")
            )
            return FAILING
        if plan.lock_timeout != "same":
            self._lock_timeout = plan.lock_timeout
        if plan.schema:
            self.schema = plan.schema
        if plan.structure or plan.captured:
            self._plans.append(plan)
        return plan.sql

    def _call(self, chain: Chain) -> None:
        """The driver does not send the text of a CALL, but the name of the procedure and its arguments: those of ASN are procedures of the server."""
        for place, frame in enumerate(chain.requests):
            if frame.code != drda.EXCSQLSTT:
                continue
            values = dict(drda.parameters(frame.body))
            name = _text(values.get(drda.PRCNAM, b"")).upper().replace('"', "")
            if not name.startswith(client_statements.PROCEDURES):
                continue
            data = chain.requests[place + 1 : place + 2]
            arguments = drda.strings(data[0].body) if data and data[0].code == drda.SQLDTA else []
            literals = ", ".join("NULL" if value is None else positions.text(value) for value in arguments)
            plan = self._statement(f"CALL {name}({literals})", chain)
            values[drda.PRCNAM] = (FAILING_PROCEDURE if plan == FAILING else client_statements.DONE).encode()
            call = frame.replaced(drda.encode_parameters(list(values.items())))
            rest = chain.requests[place + 1 + len(arguments and data) :]
            if not rest:
                call = drda.Frame(call.format & ~(drda.CHAINED | drda.SAME_CORRELATOR), call.correlator, call.payload)
            chain.requests = [*chain.requests[:place], call, *rest]
            return

    def _set_schema(self) -> None:
        """Before the first statement: names without a schema are those of the user's schema."""
        self._has_schema = True
        if self._package is None:
            return
        self._database.ensure_schema(self.schema)
        self._engine.sendall(drda.immediate(self._package, f'SET SCHEMA "{self.schema}"'))
        reader = drda.Reader()
        while True:
            data = _receive_bytes(self._engine)
            if not data:
                raise OSError("the engine closed the connection")
            for _, frame in reader.feed(data):
                if frame.code == drda.SQLCARD and (card := Card.read(frame.body)) and card.code < 0:
                    raise OSError(f"no schema {self.schema}: {card.state} {card.tokens!r}")
                if not frame.chained:
                    return

    # replies

    def _reply(self, raw: bytes, frame: Frame) -> None:
        chain = self._chain
        out = self._edited_reply(raw, frame, chain)
        if frame.chained and chain.replayable and sum(map(len, chain.held)) < RECEIVE:
            chain.held.append(out)
            return
        if not frame.chained and chain.timed_out and self._tries_again(chain):
            return
        if not frame.chained and (chain.committed or chain.rolled_back):
            self._ended(chain)
        self._client.sendall(b"".join([*chain.held, out]))
        chain.held = []

    def _tries_again(self, chain: Chain) -> bool:
        waited = time.monotonic() - chain.sent_at
        if not chain.replayable or (self._lock_timeout is not None and waited >= self._lock_timeout):
            return False
        chain.held, chain.timed_out = [], False
        self._engine.sendall(b"".join(chain.frames))
        return True

    def _ended(self, chain: Chain) -> None:
        """A transaction has ended: what it has changed in structures takes effect before the client continues."""
        plans, self._plans = self._plans, []
        committed, chain.committed, chain.rolled_back = chain.committed, False, False
        if self._login.raw:
            return
        if plans:
            self._database.structure_changed(plans, committed=committed)
        if committed:
            self._database.committed()

    def _edited_reply(self, raw: bytes, frame: Frame, chain: Chain) -> bytes:
        code = frame.code
        if code == drda.ENDUOWRM:
            how = dict(drda.parameters(frame.body)).get(drda.UOWDSP, b"")
            chain.committed |= how == b"\x01"
            chain.rolled_back |= how == b"\x02"
        elif code == drda.SECCHKRM:
            return self._checked(frame)
        elif code == drda.SQLCARD or code == drda.OPNQFLRM:  # of a query that was prepared earlier: both in one DSS
            objects = [
                (name, self._translated(body, chain) if name == drda.SQLCARD else body)
                for name, body in drda.parameters(frame.payload)
            ]
            return replace(frame, payload=drda.encode_parameters(objects)).encoded()
        return raw

    def _translated(self, body: bytes, chain: Chain) -> bytes:
        """Return the body of an SQLCARD with Db2's codes."""
        card = Card.read(body)
        return self._card(card, chain).encoded() if card and card.code else body

    def _checked(self, frame: Frame) -> bytes:
        """Check the password, as Derby accepts any, and return the message for the engine."""
        expected = self._database.password(self._login.user)
        if self._login.raw or expected is None or expected == self._login.password:
            return frame.encoded()
        refused = drda.encode_parameters([(drda.SVRCOD, struct.pack(">H", 8)), (drda.SECCHKCD, b"\x0f")])
        self._client.sendall(Frame(drda.REPLY, frame.correlator, drda.wrap_object(drda.SECCHKRM, refused)).encoded())
        raise OSError("wrong password")

    def _card(self, card: Card, chain: Chain) -> Card:
        if chain.refused is not None and card.code < 0:
            error, chain.refused = chain.refused, None
            card.code, card.state = error.code, error.state
            tokens = SEPARATOR.join(token.encode("utf-8") for token in error.tokens)
        elif card.state in REASONS:
            chain.timed_out |= card.state in DERBYS_LOCK_TIMEOUT
            tokens = REASONS[card.state].encode()
            card.state, card.code = DB2_ERRORS[card.state]
        else:
            # Derby's tokens are its arguments and its own SQLSTATE
            parts = card.tokens.split(DERBYS_SEPARATOR)
            tokens = SEPARATOR.join(parts[:-1] if parts[-1] == card.state.encode() else parts)
            card.state, card.code = DB2_ERRORS.get(card.state, (card.state, card.code))
        card.tokens = _cut_tokens(tokens)
        return card


def _access(code: int, value: bytes) -> bytes:
    if code == drda.PRDID and value[:3] == b"SQL":
        return OLD_CLIENT
    return b"\xf0" if code == drda.TRGDFTRT else value


def _cut_tokens(tokens: bytes) -> bytes:
    """Cut tokens to what the driver takes, behind a whole character."""
    end = min(len(tokens), LONGEST_TOKENS)
    while end < len(tokens) and tokens[end] & 0xC0 == 0x80:
        end -= 1
    return tokens[:end]


def _is_ebcdic(value: bytes) -> bool:
    return any(byte >= 0x80 for byte in value[:1])


def _text(value: bytes) -> str:
    return value.decode("cp500" if _is_ebcdic(value) else "utf-8").strip()


def _receive_bytes(side: socket.socket) -> bytes:
    """Receive bytes and acknowledge them at once.

    Derby and the driver keep the rest of a message back until then, 40 ms for each row with a LOB.
    """
    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    return side.recv(RECEIVE)
