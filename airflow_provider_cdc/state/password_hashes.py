"""Hashes of a password, as PostgreSQL and MySQL store them: an administrator can create a role without learning its password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import string

_CRYPT = "./" + string.digits + string.ascii_uppercase + string.ascii_lowercase
_ITERATIONS = 4096
_ROUNDS = 5000
_ORDER = [(0, 10, 20), (21, 1, 11), (12, 22, 2), (3, 13, 23), (24, 4, 14), (15, 25, 5), (6, 16, 26), (27, 7, 17), (18, 28, 8), (9, 19, 29)]  # fmt: skip
"""The bytes of a SHA-256 digest in the order in which crypt writes them."""


def scram_verifier(password: str) -> str:
    """Return the SCRAM-SHA-256 verifier that PostgreSQL stores (RFC 5802).

    PostgreSQL prepares passwords by SASLprep first; ASCII passwords, such as generated ones, stay the same.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    return f"SCRAM-SHA-256${_ITERATIONS}:{_base64(salt)}${_base64(client)}:{_base64(server)}"


def caching_sha2_hash(password: str) -> str:
    """Return the string of MySQL's ``caching_sha2_password``: SHA-256 crypt with 5000 rounds and a salt of 20 characters."""
    salt = "".join(secrets.choice(_CRYPT) for _ in range(20))
    return f"$A$005${salt}{sha256_crypt(password.encode(), salt.encode())}"


def sha256_crypt(password: bytes, salt: bytes) -> str:
    """Return the digest of SHA-256 crypt.

    >>> sha256_crypt(b"Hello world!", b"saltstring")
    '5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5'
    """
    other = hashlib.sha256(password + salt + password).digest()
    text = password + salt + _repeat(other, len(password))
    length = len(password)
    while length:
        text += other if length & 1 else password
        length >>= 1
    digest = hashlib.sha256(text).digest()
    p = _repeat(hashlib.sha256(password * len(password)).digest(), len(password))
    s = _repeat(hashlib.sha256(salt * (16 + digest[0])).digest(), len(salt))
    for i in range(_ROUNDS):
        text = (p if i & 1 else digest) + (s if i % 3 else b"") + (p if i % 7 else b"") + (digest if i & 1 else p)
        digest = hashlib.sha256(text).digest()
    groups = [_crypt64((digest[a] << 16) | (digest[b] << 8) | digest[c], 4) for a, b, c in _ORDER]
    return "".join(groups) + _crypt64((digest[31] << 8) | digest[30], 3)


def _repeat(data: bytes, length: int) -> bytes:
    return (data * (length // len(data) + 1))[:length]


def _crypt64(value: int, characters: int) -> str:
    return "".join(_CRYPT[(value >> 6 * i) & 63] for i in range(characters))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
