"""The pools that must be able to serve for `back`."""

from policies.warm import WarmTarget, warm_pools, warm_targets
from tests.support.gateways import config

ROLLOUT = {"to": "new", "steps": [{"weight": "50%"}]}


def test_an_old_arm_has_the_targets_of_its_models_and_pipelines() -> None:
    file = config(
        pools=[{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("new", "a", "b", "c", "d")],
        models=[
            {
                "name": "one",
                "routes": [{"rollout": {**ROLLOUT, "name": "pool", "from": {"pool": "a", "version": "2"}}}],
            },
            {"name": "two", "routes": [{"rollout": {**ROLLOUT, "name": "model", "from": {"model": "piped"}}}]},
            {"name": "piped", "pipeline": {"steps": [{"name": "s", "model": "routed"}]}},
            {
                "name": "routed",
                "routes": [
                    {
                        "when": {"tenant": ["x"]},
                        "split": {"arms": [{"pool": "b", "weight": 1}, {"pool": "c", "weight": 1}]},
                    },
                    {"rollout": {**ROLLOUT, "name": "inner", "from": {"pool": "d"}}},
                ],
            },
        ],
    )
    assert list(warm_targets(file, {"pool": 1})) == [("pool", WarmTarget("a", "one", "2"))]
    assert [target for _, target in warm_targets(file, {"model": 1})] == [
        WarmTarget("b", "routed", ""),
        WarmTarget("c", "routed", ""),
        WarmTarget("d", "routed", ""),
        WarmTarget("new", "routed", ""),
    ]
    assert list(warm_targets(file, {})) == []
    assert warm_pools(file, {"model": 5.0, "inner": 7.0}) == {"b": 5.0, "c": 5.0, "d": 7.0, "new": 5.0}
