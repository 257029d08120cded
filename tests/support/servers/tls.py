"""Certificates, and people in the middle who take TLS off a connection to MySQL."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CLIENT_SSL = 0x800


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, in memory and as PEM files."""

    certificate: x509.Certificate
    key: Any
    file: Path
    key_file: Path


def authority(folder: Path, name: str = "test authority") -> Certificate:
    """Make a certificate that signs others."""
    return _make_certificate(folder, name, None, [])


def sign_certificate(folder: Path, by: Certificate, name: str, *hosts: str) -> Certificate:
    """A server's certificate.

    :param name: CN of the subject
    :param hosts: names and addresses that it is for
    """
    return _make_certificate(folder, name, by, list(hosts))


def _make_certificate(folder: Path, name: str, by: Certificate | None, hosts: list[str]) -> Certificate:
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder(subject_name=subject, issuer_name=by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if by is None:
        signs = dict.fromkeys(("digital_signature", "key_cert_sign", "crl_sign"), True)
        others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        usage = x509.KeyUsage(**signs, **dict.fromkeys((*others, "encipher_only", "decipher_only"), False))
        builder = builder.add_extension(usage, critical=True)
    else:
        known = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
        builder = builder.add_extension(known, critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
    made = builder.sign(by.key if by else key, hashes.SHA256())
    stem = name.replace(" ", "-").replace("*", "any")
    file, key_file = folder / f"{stem}.pem", folder / f"{stem}.key"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_file.write_bytes(key.private_bytes(*plain))
    return Certificate(made, key, file, key_file)


def _host(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


# -- in the middle ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def strip_tls(server: Any) -> Iterator[int]:
    """A port at which the server's offer of TLS is taken out of its greeting; everything else goes through."""

    def without_offer(client: socket.socket, there: socket.socket) -> None:
        head, body = _packet(there)
        _send(client, head[3], _without_tls(body))
        _forward_both_ways(client, there)

    with _listen(server, without_offer) as port:
        yield port


@contextlib.contextmanager
def end_tls(server: Any, certificate: Certificate) -> Iterator[int]:
    """A port at which TLS ends: from there on to the server, everything goes in plain text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key_file)

    def handle_client(client: socket.socket, there: socket.socket) -> None:
        head, body = _packet(there)
        _send(client, head[3], body)
        _packet(client)  # asks for TLS
        with context.wrap_socket(client, server_side=True) as inside:
            head, body = _packet(inside)
            flags = int.from_bytes(body[:4], "little") & ~CLIENT_SSL
            _send(there, head[3] - 1, flags.to_bytes(4, "little") + body[4:])
            while True:  # the server counts one packet less than the client
                head, body = _packet(there)
                _send(inside, head[3] + 1, body)
                if body[0] in (0x00, 0xFF):
                    break
                if body[:2] != b"\x01\x03":  # but for "you are in", each is answered
                    head, body = _packet(inside)
                    _send(there, head[3] - 1, body)
            _forward_both_ways(inside, there)

    with _listen(server, handle_client) as port:
        yield port


def _without_tls(greeting: bytes) -> bytes:
    """The server's first packet, as if it could not do TLS: version, thread, salt, then the low half of what it can do."""
    at = greeting.index(b"\0", 1) + 1 + 4 + 8 + 1
    low = int.from_bytes(greeting[at : at + 2], "little") & ~CLIENT_SSL
    return greeting[:at] + low.to_bytes(2, "little") + greeting[at + 2 :]


def _packet(sock: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(sock, 4)
    return head, _exactly(sock, int.from_bytes(head[:3], "little"))


def _exactly(sock: socket.socket, n: int) -> bytes:
    found = b""
    while len(found) < n:
        part = sock.recv(n - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _send(sock: socket.socket, number: int, body: bytes) -> None:
    sock.sendall(len(body).to_bytes(3, "little") + bytes([number & 0xFF]) + body)


def _forward_both_ways(client: socket.socket, there: socket.socket) -> None:
    """Both ways, until one of them ends."""

    def copy(a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := a.recv(1 << 16):
                b.sendall(part)
        for one in (a, b):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=copy, args=(there, client), daemon=True)
    back.start()
    copy(client, there)
    back.join()


@contextlib.contextmanager
def _listen(server: Any, between: Callable[[socket.socket, socket.socket], None]) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        there = socket.create_connection((server.host, server.port))
        with client, there, contextlib.suppress(OSError, EOFError):
            between(client, there)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
