"""A certificate that is replaced file by file: no handshake fails, whatever is on the disk meanwhile."""

import contextlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.certificates import CertificateError, expiry_of, read_pair
from adapters.upstreams import dial
from config.schema.config import ListenTls, PoolConfig
from gateway.traffic.fleet.member import FleetError, tls_of
from gateway.traffic.fleet.server_tls import CertificateMetrics, ServerTls
from tests.support.tls import make_certificate

Pair = tuple[bytes, bytes]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """Connect in memory. Returns the server's certificate. Raises `ssl.SSLError`."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    certificate = sides[0].getpeercert(binary_form=True)
    assert certificate is not None
    assert sides[1].version() is not None
    return certificate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Pair], ssl.SSLContext]:
    """Three pairs, whose files have a second block, and a client that trusts any."""
    folder = tmp_path_factory.mktemp("pairs")
    folders = [make_certificate(folder / str(number)) for number in range(3)]
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the pairs have one name: their certificates are compared instead
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    extra = (folders[0] / "cert.pem").read_bytes()
    return [((one / "cert.pem").read_bytes() + extra, (one / "key.pem").read_bytes()) for one in folders], client


WRITES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["cert", "key"]), st.floats(0, 1)), max_size=12)


@given(writes=WRITES, last=st.integers(0, 2), key_first=st.booleans())
def test_no_order_of_the_writes_fails_a_handshake(
    made: tuple[list[Pair], ssl.SSLContext],
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[tuple[int, str, float]],
    last: int,
    key_first: bool,
) -> None:
    pairs, client = made
    folder = tmp_path_factory.mktemp("files")
    files = {"cert": folder / "cert.pem", "key": folder / "key.pem"}
    for name, content in zip(files, pairs[0], strict=True):
        files[name].write_bytes(content)
    tls = ServerTls(ListenTls(cert=str(files["cert"]), key=str(files["key"])))
    tls.load()
    assert tls.contexts is not None
    certificates = [ssl.PEM_cert_to_DER_cert(cert.decode().partition("-----END")[0] + END) for cert, _ in pairs]

    for number, name, share in [*writes, (last, "key" if key_first else "cert", 1.0)]:
        content = pairs[number][name == "key"]
        files[name].write_bytes(content[: round(share * len(content))])
        try:
            tls.load()
        except FleetError as error:
            assert str(error).startswith("listen.tls: ")  # noqa: PT017
        assert handshake(tls.contexts(), client) in certificates
    for name, content in zip(files, pairs[last], strict=True):
        files[name].write_bytes(content)
    tls.load()
    assert handshake(tls.contexts(), client) == certificates[last]


END = "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cert, key, other: cert.write_bytes(other[0]), "the key does not belong to the certificate"),
        (lambda cert, key, other: key.write_bytes(other[1]), "the key does not belong to the certificate"),
        (lambda cert, key, other: cert.write_bytes(other[0][:-40]), "cert.pem: ends within a PEM block"),
        (lambda cert, key, other: key.write_bytes(b""), "key.pem: has no complete PEM block"),
        (lambda cert, key, other: cert.unlink(), "cert.pem: No such file or directory"),
    ],
)
def test_a_refused_pair_has_a_reason_and_a_count(
    made: tuple[list[Pair], ssl.SSLContext],
    tmp_path: Path,
    change: Callable[[Path, Path, Pair], Any],
    reason: str,
) -> None:
    [first, other, _], client = made
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(first[0])
    key.write_bytes(first[1])
    tls = ServerTls(ListenTls(cert=str(cert), key=str(key)))
    tls.load()
    change(cert, key, other)
    with pytest.raises(FleetError, match=reason):
        tls.load()
    assert tls.contexts is not None
    handshake(tls.contexts(), client)
    samples = {
        (sample.name, sample.labels["listener"]): sample.value
        for family in CertificateMetrics({"http": tls}).collect()
        for sample in family.samples
    }
    assert samples["headrace_certificate_load_failures_total", "http"] == 1
    assert samples["headrace_certificate_expiry_timestamp_seconds", "http"] == expiry_of(first[0])

    lent = ServerTls(ListenTls(cert=str(cert), key=str(key)), lent=tls.files)  # a worker that starts now
    lent.load()
    assert lent.contexts is not None
    handshake(lent.contexts(), client)


def test_an_expired_certificate_replaces_no_valid_one(
    made: tuple[list[Pair], ssl.SSLContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, other, _], _ = made
    (tmp_path / "cert.pem").write_bytes(first[0])
    (tmp_path / "key.pem").write_bytes(first[1])
    tls = ServerTls(ListenTls(cert=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem")))
    tls.load()
    (tmp_path / "cert.pem").write_bytes(other[0])
    (tmp_path / "key.pem").write_bytes(other[1])
    monkeypatch.setattr("gateway.traffic.fleet.server_tls.load_pair", lambda context, pair: time.time() - 1)
    with pytest.raises(FleetError, match="the certificate has expired"):
        tls.load()


def test_a_pool_presents_the_certificate_before_while_its_files_are_replaced(
    made: tuple[list[Pair], ssl.SSLContext], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [first, other, _], _ = made
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(first[0])
    key.write_bytes(first[1])
    tls = {"cert": str(cert), "key": str(key)}
    pool = PoolConfig.model_validate({"name": "gpu", "endpoints": ["https://127.0.0.1:1"], "tls": tls})
    before = tls_of(pool, "openai", renews=True)
    cert.write_bytes(other[0])
    for _ in range(3):
        assert tls_of(pool, "openai") is before
    assert [record.getMessage() for record in caplog.records] == [
        "pool gpu: tls: the key does not belong to the certificate: the certificate before stays in use"
    ]
    with pytest.raises(FleetError, match="pool gpu: tls: the key does not belong"):
        tls_of(pool, "openai", renews=True)
    assert pool.tls is not None
    assert dial.client_certificate(pool.tls) == (expiry_of(first[0]), 1)
    key.write_bytes(other[1])
    assert tls_of(pool, "openai") is not before
    [expiry, failed] = CertificateMetrics({}, lambda: [pool]).collect()
    assert [sample.value for sample in expiry.samples] == [expiry_of(other[0])]
    assert [sample.labels["pool"] for sample in failed.samples if sample.name.endswith("total")] == ["gpu"]


def test_an_encrypted_key_is_refused_without_a_prompt(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as pem

    folder = make_certificate(tmp_path / "pair")
    key = pem.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    secret = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret"))
    (folder / "key.pem").write_bytes(secret)
    tls = ServerTls(ListenTls(cert=str(folder / "cert.pem"), key=str(folder / "key.pem")))
    with pytest.raises(FleetError, match="the key is encrypted"):
        tls.load()


def test_a_file_of_both_is_a_pair(tmp_path: Path) -> None:
    folder = make_certificate(tmp_path / "pair")
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    assert read_pair(str(both)).cert == read_pair(str(both)).key
    with pytest.raises(CertificateError):
        read_pair(str(folder / "missing.pem"))
