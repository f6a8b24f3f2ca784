"""A DNS server on a real UDP socket, whose records a test writes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


class Nameserver(asyncio.DatagramProtocol):
    """`records` are by name and type; a name with none of any type does not exist."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.ttl = 0
        self.rcode = dns.rcode.NOERROR
        self.silent: set[str] = set()
        """Types that are not answered."""
        self.received: Counter[tuple[str, str]] = Counter()
        self.address = ""
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.received[name, kind] += 1
        if kind in self.silent:
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        response.set_rcode(self.rcode)
        values = self.records.get((name, kind))
        if values and self.rcode == dns.rcode.NOERROR:
            response.answer.append(dns.rrset.from_text(question.name, self.ttl, "IN", kind, *values))
        elif not any(owner == name for owner, _ in self.records) and self.rcode == dns.rcode.NOERROR:
            response.set_rcode(dns.rcode.NXDOMAIN)
        self._transport.sendto(response.to_wire(), addr)


@asynccontextmanager
async def nameserver() -> AsyncIterator[Nameserver]:
    """One that listens."""
    transport, made = await asyncio.get_running_loop().create_datagram_endpoint(Nameserver, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    made.address = f"{host}:{port}"
    try:
        yield made
    finally:
        transport.close()
