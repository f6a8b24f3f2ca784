import asyncio
import socket

import pytest

from config.schema.units import HostPort
from gateway.process.supervisor.sockets import Sockets


def test_every_slot_has_a_socket_of_its_own_on_one_port() -> None:
    sockets = Sockets(HostPort("127.0.0.1", 0))
    sockets.grow(3)
    ports = {one.getsockname()[1] for slot in sockets.slots for one in slot}
    assert ports == {sockets.address[1]}
    assert len({fd for slot in sockets.numbers() for fd in slot}) == 3
    first = sockets.numbers()
    sockets.grow(2)
    assert sockets.numbers() == first  # what waits in a backlog is never closed
    sockets.grow(4)
    assert sockets.numbers()[:3] == first
    assert sockets.slots[3][0].getsockname()[1] == sockets.address[1]
    sockets.close()


def test_grpc_has_sockets_beside_those_of_http() -> None:
    sockets = Sockets(HostPort("127.0.0.1", 0), HostPort("127.0.0.1", 0))
    assert sockets.kinds == ["http", "grpc"]
    sockets.grow(3)
    assert [len(slot) for slot in sockets.slots] == [2, 2, 2]
    ports = [[one.getsockname()[1] for one in slot] for slot in sockets.slots]
    assert sockets.grpc_address is not None
    assert ports == [[sockets.address[1], sockets.grpc_address[1]]] * 3
    assert ports[0][0] != ports[0][1]
    sockets.close()


def test_connections_are_made_before_any_worker_accepts() -> None:
    sockets = Sockets(HostPort("127.0.0.1", 0))
    sockets.grow(1)
    with socket.create_connection(sockets.address, 5) as client:
        accepted, name = sockets.slots[0][0].accept()
        assert name == client.getsockname()
        accepted.close()
    sockets.close()


def test_a_name_of_two_addresses_is_bound_at_both() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sockets = Sockets(HostPort("localhost", port))
    sockets.grow(2)
    expected = {info[4][0] for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
    for slot in sockets.slots:
        assert {one.getsockname()[0] for one in slot} == expected
    sockets.close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_another_process_listens_on_is_not_shared_with_it(shared: bool) -> None:
    with socket.socket() as other:
        if shared:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            Sockets(HostPort("127.0.0.1", other.getsockname()[1])).grow(2)


async def test_a_start_waits_for_the_workers_of_a_killed_supervisor() -> None:
    orphans = socket.create_server(("127.0.0.1", 0))
    sockets = Sockets(HostPort("127.0.0.1", orphans.getsockname()[1]))
    asyncio.get_running_loop().call_later(2.0, orphans.close)
    await sockets.begin(2)
    assert len(sockets.slots) == 2
    with pytest.raises(OSError, match="in use"):
        await Sockets(HostPort("127.0.0.1", sockets.address[1])).begin(1)
    sockets.close()
