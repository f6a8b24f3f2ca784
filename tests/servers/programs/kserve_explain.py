"""KServe's own client of explanations, unchanged: `kserve_explain.py KEY MODEL INSTANCES URL...`.

It prints the answers of each address as one line of JSON: the explanations, then the predictions.
"""

import asyncio
import json
import sys

from kserve import InferenceRESTClient, RESTConfig


async def main(key: str, model: str, instances: str, *urls: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v1", timeout=60))
    headers, body = {"authorization": f"Bearer {key}"}, {"instances": json.loads(instances)}
    for url in urls:
        explained = await client.explain(url, model, body, headers=dict(headers))
        predicted = await client.infer(url, body, model_name=model, headers=dict(headers))
        print(json.dumps([explained["explanations"], predicted["predictions"]]))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
