"""The logon of 12c: the password itself never crosses the wire, and is really checked."""

import hashlib
import secrets

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dev.servers.oracle.wire.packets import Reader, encode_counted, ub

VERIFIER_12C = 0x4815
VERIFIER_ROUNDS = 4096
SESSION_ROUNDS = 3
SALT_TEXT = b"AUTH_PBKDF2_SPEEDY_KEY"
SERVER_VERSION = 0x13300000
"""What ``connection.version`` shows: 19.3."""


def read_logon(reader: Reader) -> tuple[str, dict[str, str]]:
    """The user name and the keys and values of a logon message."""
    reader.u8()
    named = reader.ub()
    reader.ub()
    reader.u8()
    pairs = reader.ub()
    reader.u8()
    reader.u8()
    user = (reader.sized() or b"").decode() if named else ""
    values = {}
    for _ in range(pairs):
        key = reader.counted().decode()
        values[key] = reader.counted().decode("utf-8", "replace")
        reader.ub()
    return user, values


def parameters(*values: tuple[str, str] | tuple[str, str, int]) -> bytes:
    """A message of keys and values, and the end of the call."""
    body = b"".join(
        encode_counted(item[0]) + encode_counted(item[1]) + ub(item[2] if len(item) > 2 else 0) for item in values
    )
    return b"\x08" + ub(len(values)) + body + b"\x09" + ub(0) + ub(0)


class Logon:
    """A logon: a challenge, then the proof."""

    def __init__(self, user: str, password: str | None) -> None:
        self.user = user
        self._password = password
        self._part = secrets.token_bytes(32)
        self._salt = secrets.token_bytes(16)
        self._verifier = secrets.token_bytes(16)
        known = (password if password is not None else secrets.token_hex(8)).encode()
        key = hashlib.pbkdf2_hmac("sha512", known, self._verifier + SALT_TEXT, VERIFIER_ROUNDS, 64)
        self._hash = hashlib.sha512(key + self._verifier).digest()[:32]

    def challenge(self) -> bytes:
        """The first answer."""
        return parameters(
            ("AUTH_SESSKEY", _aes(self._hash, self._part, encrypt=True).hex().upper()),
            ("AUTH_VFR_DATA", self._verifier.hex().upper(), VERIFIER_12C),
            ("AUTH_PBKDF2_CSK_SALT", self._salt.hex().upper()),
            ("AUTH_PBKDF2_VGEN_COUNT", str(VERIFIER_ROUNDS)),
            ("AUTH_PBKDF2_SDER_COUNT", str(SESSION_ROUNDS)),
        )

    def verify(self, values: dict[str, str], facts: dict[str, str]) -> bytes | None:
        """The second answer; None when the password is wrong or the user does not exist."""
        theirs = _aes(self._hash, bytes.fromhex(values["AUTH_SESSKEY"])[:32], encrypt=False)
        mixed = (theirs + self._part).hex().upper().encode()
        session = hashlib.pbkdf2_hmac("sha512", mixed, self._salt, SESSION_ROUNDS, 32)
        plain = _aes(session, bytes.fromhex(values["AUTH_PASSWORD"]), encrypt=False)
        if self._password is None or plain[16 : -plain[-1]] != self._password.encode():
            return None
        proof = _aes(session, _pad_block(secrets.token_bytes(16) + b"SERVER_TO_CLIENT"), encrypt=True)
        return parameters(("AUTH_SVR_RESPONSE", proof.hex().upper()), *facts.items())


def _aes(key: bytes, data: bytes, *, encrypt: bool) -> bytes:
    cipher = Cipher(algorithms.AES(key), modes.CBC(bytes(16)))
    worker = cipher.encryptor() if encrypt else cipher.decryptor()
    return worker.update(data) + worker.finalize()


def _pad_block(data: bytes) -> bytes:
    missing = 16 - len(data) % 16
    return data + bytes((missing,)) * missing
