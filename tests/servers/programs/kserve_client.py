"""KServe's own clients, unchanged, before an address: `kserve_client.py HTTP GRPC KEY MODEL... -- V1_MODEL...`.

Each model adds and subtracts; the program prints each request and its model, and fails at the first wrong answer.
"""

import asyncio
import sys
from typing import Any

import grpc
import httpx  # type: ignore[import-not-found, unused-ignore]
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

ROWS = np.arange(16, dtype=np.int32).reshape(1, 16)
V1 = {"instances": [{"INPUT0": list(range(16)), "INPUT1": [1] * 16}]}


def request(model: str, *, binary: bool) -> InferRequest:
    inputs = []
    for name in ("INPUT0", "INPUT1"):
        one = InferInput(name, [1, 16], "INT32")
        one.set_data_from_numpy(ROWS, binary_data=binary)
        inputs.append(one)
    return InferRequest(model, inputs)


def check(model: str, response: Any) -> None:
    sums = {output.name: output.as_numpy() for output in response.outputs}
    assert (sums["OUTPUT0"] == ROWS * 2).all(), (model, sums)
    assert (sums["OUTPUT1"] == 0).all(), (model, sums)


async def over_http(url: str, models: list[str], headers: dict[str, str]) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    for model in models:
        assert await client.is_model_ready(url, model, headers=headers)
        for binary in (False, True):
            response = await client.infer(url, request(model, binary=binary), model_name=model, headers=dict(headers))
            check(model, response)
        print("v2", model)
    status = 200
    try:
        await client.infer(url, request("nobody", binary=False), model_name="nobody", headers=dict(headers))
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
    assert status == 404, status
    await client.close()


async def over_grpc(address: str, models: list[str], headers: dict[str, str]) -> None:
    client, metadata = InferenceGRPCClient(address, timeout=60), tuple(headers.items())
    assert await client.is_server_live(headers=metadata)
    assert await client.is_server_ready(headers=metadata)
    for model in models:
        assert await client.is_model_ready(model, headers=metadata)
        for binary in (False, True):
            check(model, await client.infer(request(model, binary=binary), headers=metadata))
        code = None
        try:
            await client.infer(request("nobody", binary=False), headers=metadata)
        except grpc.RpcError as error:
            code = error.code()
        assert code == grpc.StatusCode.NOT_FOUND, code
        print("grpc", model)
    await client.close()


async def over_v1(url: str, models: list[str], headers: dict[str, str]) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v1", timeout=60))
    for model in models:
        assert await client.is_model_ready(url, model, headers=headers)
        response = await client.infer(url, V1, model_name=model, headers=dict(headers))
        rows = response["predictions"]
        assert rows[0]["OUTPUT0"] == [one + 1 for one in range(16)], (model, response)
        print("v1", model)
    response = await client.explain(url, models[0], V1, headers=dict(headers))
    assert response["explanations"]["rows"] == 1, response
    print("explained", models[0])
    await client.close()


async def main(http: str, rpc: str, key: str, *names: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    at = names.index("--")
    await over_http(http, list(names[:at]), headers)
    await over_grpc(rpc, list(names[:at]), headers)
    await over_v1(http, list(names[at + 1 :]), headers)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
