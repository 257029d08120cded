"""Certificates for servers of tests: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates; its own is ``file``."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def made(cls, folder: Path, name: str = "authority") -> Authority:
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            _builder(name, name, key).add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
        )
        authority = cls(folder, name, key, made)
        authority.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def file(self) -> Path:
        """Its certificate, as PEM."""
        return self.folder / f"{self.name}.pem"

    def server(self, host: str = "127.0.0.1", name: str = "server") -> Path:
        """Key and certificate of a server, in one PEM file.

        :param host: the address that it is called by
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        certificate = _builder(host, self.name, key).add_extension(names, False).sign(self.key, hashes.SHA256())
        file = self.folder / f"{name}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        return file


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )
