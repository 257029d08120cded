"""A listener for TCPS: TLS from the first byte on, and inside it what the plain listener speaks."""

import contextlib
import logging
import socket
import ssl
import threading

LOG = logging.getLogger("oracle.tls")


class TlsListener:
    """Lets clients in at one port, with a certificate, and hands them to the plain listener of the same instance.

    :param port: where clients come; ``plain`` is the other listener's
    :param certificate: PEM files of the certificate and of its key
    :param clients: PEM file of the authorities whose clients alone are let in; empty = all clients
    """

    def __init__(self, port: int, plain: int, certificate: tuple[str, str], clients: str = "") -> None:
        self._plain = plain
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        if clients:
            self._context.load_verify_locations(clients)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            inside = self._context.wrap_socket(client, server_side=True)
        except OSError as error:
            LOG.info("a client was not let in: %s", error)
            client.close()
            return
        with inside, socket.create_connection(("127.0.0.1", self._plain)) as there:
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_copy, args=(there, inside), daemon=True).start()
            _copy(inside, there)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
