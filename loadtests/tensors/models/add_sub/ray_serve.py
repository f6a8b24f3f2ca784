"""The sum and the difference, as a deployment of Ray Serve that batches; run as a program, it serves on a port."""

import sys
import time
from typing import Any

import numpy as np
import ray
from ray import serve


class AddSub:
    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0)
    async def both(self, bodies: list[Any]) -> list[dict[str, Any]]:
        one = np.array([body["INPUT0"] for body in bodies], dtype=np.int32)
        other = np.array([body["INPUT1"] for body in bodies], dtype=np.int32)
        sums, differences = (one + other).tolist(), (one - other).tolist()
        return [{"OUTPUT0": plus, "OUTPUT1": minus} for plus, minus in zip(sums, differences, strict=True)]

    async def __call__(self, request: Any) -> Any:
        return await self.both(await request.json())


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    deployed = serve.deployment(num_replicas=1, max_ongoing_requests=64, ray_actor_options={"num_cpus": 0})
    serve.run(deployed(AddSub).bind())
    while True:
        time.sleep(3600)
