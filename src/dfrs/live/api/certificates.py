"""Certificates of a controller that has none: an authority of its own, and a server's certificate signed by it.

Users and agents are given the authority's certificate, `ca.pem`. The authority lasts ten years, the server's
certificate one; it is made anew at start when less than thirty days are left or its names are no longer right.
"""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dfrs.live.home import AUTHORITY, make_private, write_private
from dfrs.model.errors import InputError

AUTHORITY_DAYS, SERVER_DAYS, RENEW_DAYS = 3650, 365, 30

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files, PEM: what a server needs, and what its clients must trust (None: they know who signed it)."""

    certificate: Path
    key: Path
    authority: Path | None

    def context(self) -> ssl.SSLContext:
        """For a server. Raises InputError for files that do not fit together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"{self.certificate}, {self.key}: must be a certificate and its key, as PEM, no password: {reason}"
            ) from None
        return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def own_certificates(directory: Path, names: Iterable[str], now: dt.datetime | None = None) -> Certificates:
    """Certificates in `directory` for hosts and addresses `names`, made or renewed where that is due.

    Raises InputError or DfrsError if the directory cannot be used.
    """
    made = Certificates(
        certificate=directory / "server.pem", key=directory / "server.key", authority=directory / AUTHORITY
    )
    now = now or dt.datetime.now(dt.UTC)
    make_private(directory)
    found = _read(directory / AUTHORITY, directory / "ca.key")
    if found is None or _days_left(found[0], now) < RENEW_DAYS:
        found = _new_authority(directory, now)
    authority, authority_key = found
    wanted = sorted(set(names))
    server = _read(made.certificate, made.key)
    if server is None or not _serves(server[0], authority, wanted, now):
        _new_server(made, authority, authority_key, wanted, now)
    return made


def _read(certificate: Path, key: Path) -> tuple[x509.Certificate, _Key] | None:
    """Both, if they are there and belong together."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        secret = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(secret, ec.EllipticCurvePrivateKey) or found.public_key() != secret.public_key():
        return None
    return found, secret


def _days_left(certificate: x509.Certificate, now: dt.datetime) -> float:
    return (certificate.not_valid_after_utc - now) / dt.timedelta(days=1)


def _serves(server: x509.Certificate, authority: x509.Certificate, names: list[str], now: dt.datetime) -> bool:
    try:
        server.verify_directly_issued_by(authority)
        found = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False
    except Exception:  # the signature does not fit; cryptography's own exception says no more
        return False
    known = {str(name.value) for name in found}
    return known >= set(names) and _days_left(server, now) >= RENEW_DAYS


def _new_authority(directory: Path, now: dt.datetime) -> tuple[x509.Certificate, _Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dfrs authority {x509.random_serial_number():x}"[:32])])
    usage = _usage(signs_certificates=True)
    certificate = (
        _builder(name, name, key, now, now + dt.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(directory / "ca.key", _pem(key))
    write_private(directory / AUTHORITY, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate, key


def _new_server(
    files: Certificates, authority: x509.Certificate, authority_key: _Key, names: list[str], now: dt.datetime
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dfrs controller")])
    end = min(now + dt.timedelta(days=SERVER_DAYS), authority.not_valid_after_utc)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(name, authority.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    write_private(files.key, _pem(key))
    write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, begin: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    # A clock that is a little late must not refuse a new certificate.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - dt.timedelta(hours=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
