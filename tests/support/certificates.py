"""Certificates for tests: an authority, and the certificates that it signs."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


def _name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


class Authority:
    """An authority that writes its files into a directory."""

    def __init__(self, directory: Path, name: str = "Test CA") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name((NameOID.ORGANIZATION_NAME, "Test"), (NameOID.COMMON_NAME, name))
        self._serials: dict[str, int] = {}
        self._made = 0
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path = directory / "ca.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, age: timedelta = timedelta()
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC) - age
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )

    def issue(
        self,
        name: str,
        *attributes: tuple[x509.ObjectIdentifier, str],
        file: str = "",
        age: timedelta = timedelta(),
    ) -> tuple[Path, Path]:
        """Issue a certificate and its key: for a server by its address, for a client by its name and more attributes.

        It is valid for a day from its issue, which was `age` ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(*attributes, (NameOID.COMMON_NAME, name))
        builder = self._builder(subject, key.public_key(), age)
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        certificate = (
            builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._serials[name] = certificate.serial_number
        self._made += 1
        stem = file or f"made-{self._made}"
        paths = self.directory / f"{stem}.pem", self.directory / f"{stem}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].unlink(missing_ok=True)
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths

    def revoke(self, *names: str) -> Path:
        """Write a revocation list with the latest certificates of these names."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - _DAY)
            .next_update(now + _DAY)
        )
        for name in names:
            revoked = x509.RevokedCertificateBuilder().serial_number(self._serials[name]).revocation_date(now - _DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        path = self.directory / "revoked.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def client(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority, maybe with a certificate."""
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
