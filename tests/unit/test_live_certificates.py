"""Certificates that a controller makes for itself: right names, kept while good, renewed in time, keys for it alone."""

import datetime as dt
import ssl

import pytest
from cryptography import x509

from dfrs.live.api.certificates import Certificates, own_certificates
from dfrs.model.errors import InputError

NAMES = ("localhost", "127.0.0.1", "::1", "head.example")
NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def days(certificate, now=NOW):
    return (certificate.not_valid_after_utc - now) / dt.timedelta(days=1)


@pytest.fixture
def made(tmp_path):
    return own_certificates(tmp_path / "tls", NAMES, NOW)


def test_names_and_time(made):
    server, authority = read(made.certificate), read(made.authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == set(NAMES)
    assert {str(address) for address in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1"}
    assert (days(server), days(authority)) == (365, 3650)
    server.verify_directly_issued_by(authority)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_are_for_this_account_alone(made, tmp_path):
    for key in ("server.key", "ca.key"):
        assert (tmp_path / "tls" / key).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700


def test_good_ones_are_kept(made, tmp_path):
    before = {path: path.read_bytes() for path in (tmp_path / "tls").iterdir()}
    own_certificates(tmp_path / "tls", NAMES[:2], NOW + dt.timedelta(days=334))
    assert {path: path.read_bytes() for path in (tmp_path / "tls").iterdir()} == before


@pytest.mark.parametrize(
    ("names", "later_d"), [(NAMES, 336), (NAMES, 700), ((*NAMES, "192.0.2.1"), 0)], ids=["soon", "expired", "named"]
)
def test_the_server_s_is_renewed_by_the_same_authority(made, tmp_path, names, later_d):
    authority, before = made.authority.read_bytes(), made.certificate.read_bytes()
    now = NOW + dt.timedelta(days=later_d)
    again = own_certificates(tmp_path / "tls", names, now)
    assert again.authority.read_bytes() == authority
    assert again.certificate.read_bytes() != before
    assert days(read(again.certificate), now) == 365
    again.context()


def test_the_authority_is_renewed_with_what_it_signed(made, tmp_path):
    now = NOW + dt.timedelta(days=3640)
    again = own_certificates(tmp_path / "tls", NAMES, now)
    assert days(read(again.authority), now) == 3650
    read(again.certificate).verify_directly_issued_by(read(again.authority))


@pytest.mark.parametrize("name", ["server.key", "server.pem", "ca.key", "ca.pem"])
@pytest.mark.parametrize("harm", ["gone", "spoilt", "other"])
def test_harmed_files_are_made_anew(made, tmp_path, name, harm):
    path = tmp_path / "tls" / name
    if harm == "gone":
        path.unlink()
    elif harm == "spoilt":
        path.write_bytes(path.read_bytes()[:60])
    else:
        own_certificates(tmp_path / "other", NAMES, NOW)
        path.write_bytes((tmp_path / "other" / name).read_bytes())
    harmed = path.read_bytes() if path.exists() else None
    again = own_certificates(tmp_path / "tls", NAMES, NOW)
    assert path.read_bytes() != harmed
    read(again.certificate).verify_directly_issued_by(read(again.authority))
    again.context()


def test_a_client_that_trusts_the_authority_believes_only_these_names(tmp_path):
    made = own_certificates(tmp_path / "tls", NAMES)

    def shake_hands(name):
        ours = ssl.create_default_context(cafile=str(made.authority))
        ours.verify_flags |= ssl.VERIFY_X509_STRICT
        pairs = [(ssl.MemoryBIO(), ssl.MemoryBIO())] * 2
        client = ours.wrap_bio(*pairs[0], server_hostname=name)
        server = made.context().wrap_bio(pairs[0][1], pairs[0][0], server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return client.version()

    assert shake_hands("head.example") == shake_hands("127.0.0.1") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands("elsewhere.example")


def test_own_files_that_do_not_fit_are_refused_in_one_line(made, tmp_path):
    for certificate, key in ((made.certificate, made.authority), (tmp_path / "none", made.key)):
        with pytest.raises(InputError) as refused:
            Certificates(certificate=certificate, key=key, authority=None).context()
        assert "\n" not in str(refused.value)
