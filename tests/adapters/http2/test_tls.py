"""TLS on both sides: HTTP/2 agreed by ALPN, certificates of servers and of clients."""

import ssl
from pathlib import Path

import grpc
import pytest

from adapters.errors import TransportError
from adapters.http2.call import GrpcCall
from tests.adapters.http2.channels import calling, soon
from tests.adapters.http2.peer import connected, framed, request
from tests.adapters.http2.served import PATIENCE, Methods, Served, in_thread, serving
from tests.support.tls import client_side, make_certificate, server_side

pytestmark = pytest.mark.realtime

ECHO = b"/test.Service/Echo"


@pytest.fixture(scope="module")
def client_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("client") / "own")


def demanding(certificate: Path, client_certificate: Path) -> ssl.SSLContext:
    """A server that requires a client certificate."""
    context = server_side(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(client_certificate / "cert.pem")
    return context


class NameOfClient:
    """Answers with the name in the client's certificate."""

    async def __call__(self, call: GrpcCall) -> None:
        await call.unary()
        certificate = call.peer_certificate
        call.reply(str(certificate and certificate["subject"]).encode())


def call_with_grpcio(served: Served, certificate: Path, own: Path | None = None) -> bytes:
    credentials = grpc.ssl_channel_credentials(
        (certificate / "cert.pem").read_bytes(),
        (own / "key.pem").read_bytes() if own else None,
        (own / "cert.pem").read_bytes() if own else None,
    )
    with grpc.secure_channel(served.target, credentials) as channel:
        return bytes(channel.unary_unary(ECHO.decode())(b"x" * 100_000, timeout=PATIENCE))


async def test_grpcs_own_client(certificate: Path) -> None:
    async with serving(Methods(), certificate=certificate) as served:
        assert await in_thread(lambda: call_with_grpcio(served, certificate)) == b"x" * 100_000


async def test_grpcs_own_client_with_a_certificate(certificate: Path, client_certificate: Path) -> None:
    tls = demanding(certificate, client_certificate)
    async with serving(NameOfClient(), tls=tls) as served:
        subject = await in_thread(lambda: call_with_grpcio(served, certificate, client_certificate))
        assert b"test" in subject
        with pytest.raises(grpc.RpcError) as caught:
            await in_thread(lambda: call_with_grpcio(served, certificate))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_our_client_with_a_certificate(certificate: Path, client_certificate: Path) -> None:
    own = client_side(certificate)
    own.load_cert_chain(client_certificate / "cert.pem", client_certificate / "key.pem")
    async with serving(NameOfClient(), tls=demanding(certificate, client_certificate)) as served:
        async with calling(f"https://127.0.0.1:{served.port}", tls=own) as channel:
            assert b"test" in await channel.unary(ECHO, b"", deadline=soon(channel))
        async with calling(f"https://127.0.0.1:{served.port}", tls=client_side(certificate)) as channel:
            with pytest.raises(TransportError):
                await channel.unary(ECHO, b"", deadline=soon(channel))


async def test_a_large_message_over_tls(certificate: Path) -> None:
    message = bytes(range(256)) * 20_000
    async with (
        serving(Methods(), certificate=certificate) as served,
        calling(f"https://127.0.0.1:{served.port}", tls=client_side(certificate)) as channel,
    ):
        assert await channel.unary(ECHO, message, deadline=soon(channel)) == message


async def test_a_server_with_another_certificate_is_refused(certificate: Path, client_certificate: Path) -> None:
    async with serving(Methods(), certificate=certificate) as served:
        for tls, name in ((client_side(client_certificate), None), (client_side(certificate), "other.example")):
            url = f"https://127.0.0.1:{served.port}"
            async with calling(url, tls=tls, server_name=name) as channel:
                with pytest.raises(TransportError):
                    await channel.unary(ECHO, b"", deadline=soon(channel))


async def test_alpn_negotiates_http2(certificate: Path) -> None:
    tls = client_side(certificate)
    tls.set_alpn_protocols(["http/1.1", "h2"])
    async with serving(Methods(), certificate=certificate) as served, connected(served.port, tls) as peer:
        assert peer.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        assert (await peer.request(request(), framed(b"x"))).messages == [b"x"]
        assert await served.server.drain(PATIENCE)


async def test_a_call_without_tls_has_no_certificate() -> None:
    async with serving(NameOfClient()) as served, calling(f"http://127.0.0.1:{served.port}") as channel:
        assert await channel.unary(ECHO, b"", deadline=soon(channel)) == b"None"
