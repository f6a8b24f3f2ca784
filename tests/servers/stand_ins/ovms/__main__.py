"""Both of them on loopback."""

import asyncio
import sys

import grpc
from aiohttp import web
from tritonclient.grpc import service_pb2_grpc as service

from tests.servers.stand_ins.ovms.models import Models
from tests.servers.stand_ins.ovms.rest import Rest
from tests.servers.stand_ins.ovms.rpc import Grpc


async def serve(http: int, rpc: int) -> None:
    models = Models()
    server = grpc.aio.server()
    service.add_GRPCInferenceServiceServicer_to_server(Grpc(models), server)
    server.add_insecure_port(f"127.0.0.1:{rpc}")
    await server.start()
    runner = web.AppRunner(Rest(models).application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", http).start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
