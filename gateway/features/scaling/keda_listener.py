"""The gRPC listener for KEDA, which needs an extra."""

from contextlib import AsyncExitStack

from config.installing import installing
from config.schema.config import Config
from gateway.errors import StartError
from gateway.features.scaling.autoscaler import Autoscaler


async def listen_to_keda(config: Config, autoscaler: Autoscaler, exits: AsyncExitStack) -> tuple[str, int] | None:
    """Listen until the exits close. Returns the address, if one is configured. Raises `OSError` and `StartError`."""
    if (address := config.listen.keda) is None:
        return None
    try:
        from gateway.features.scaling.keda import keda_server
    except ModuleNotFoundError as error:
        raise StartError(f"listen.keda: the package {error.name} is missing: {installing('grpc')}") from None
    server = keda_server(autoscaler)
    exits.push_async_callback(server.aclose)
    return await server.listen_tcp(address.host, address.port)
