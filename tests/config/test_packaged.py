"""The default and every example load, and have the effect that their comments describe."""

from pathlib import Path

import pytest

from config import default_path
from config.loader import load, pack, read, unpack
from config.schema.config import CommandRuntime, Config, LlmRuntime, VllmRuntime
from config.schema.protocols.tensors import OipHttpProtocol
from config.schema.units import RateLimit
from tests.support.examples import examples


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return examples(tmp_path, monkeypatch)


def test_each_arrives_in_another_process_as_it_is(example: Path) -> None:
    written = [path for path in sorted(example.glob("*.yaml")) if not path.name.endswith(".tests.yaml")]
    for path in (default_path(), *written):
        config = load(path)
        arrived = unpack(pack(config))
        assert arrived.model_dump() == config.model_dump(), path
        assert arrived.line_of(0, 0) == config.line_of(0, 0) is not None
        assert pack(arrived) == pack(config)


def pools(config: Config) -> dict[str, list[str]]:
    return {pool.name: [endpoint.url for endpoint in pool.endpoints] for pool in config.pools}


def test_the_default_needs_nothing() -> None:
    config = load(default_path())
    runtime = config.pools[0].runtime
    assert isinstance(runtime, LlmRuntime)
    assert runtime.model == "bundled:smollm2-135m-instruct"
    assert config.models[0].routes[0].pools() == ("smollm2",)
    assert config.auth.demo_key
    assert config.listen.http.is_loopback
    assert config.listen.admin.is_loopback
    (demo,) = config.tenants
    assert (demo.name, demo.models) == ("demo", ("*",))
    assert demo.limit_list()[0].requests == RateLimit(600, 60)


def test_every_example_has_a_test_here(example: Path) -> None:
    names = sorted(path.stem for path in example.glob("*.yaml") if not path.stem.endswith(".tests"))
    first = ["canary", "discovery", "experiment", "hosted", "pipelines", "programs", "queue", "ray", "replicas"]
    assert names == [*first, "resilient", "shadow", "shared-limits", "sidecar", "tenants", "tensors"]


def test_experiment(example: Path) -> None:
    config = load(example / "experiment.yaml")
    compared = config.models[0].routes[0].experiment
    assert compared is not None
    assert compared.labels == ("long", "short")
    assert compared.metric == config.feedback[0].name
    assert [arm.rewrite.force["max_tokens"] for arm in compared.arms if arm.rewrite] == [24, 8]


def test_canary(example: Path) -> None:
    config = load(example / "canary.yaml")
    long, split = config.models[0].routes
    assert long.when.prompt_tokens == ">4000"
    assert "candidate" not in long.pools()
    assert split.split is not None
    assert split.split.sticky == "user"
    assert [(arm.pool, arm.weight) for arm in split.split.arms] == [("stable", 90), ("candidate", 10)]
    assert [entry.pool for entry in split.fallback] == ["stable", "last-resort"]
    assert split.retry.attempts == 3
    assert (split.timeout.first_byte, split.timeout.idle, split.timeout.total) == (10, 20, 300)
    assert [endpoint.weight for endpoint in config.pools[0].endpoints] == [1, 2]


def test_pipelines(example: Path) -> None:
    reading = read(example / "pipelines.yaml")
    assert reading.config is not None
    assert reading.warnings == ()
    piped = {model.name: model.pipeline for model in reading.config.models if model.pipeline is not None}
    assert list(piped) == [
        "large",
        "cascade",
        "guarded",
        "retrieval",
        "reviewed",
        "by-length",
        "ocr",
        "ocr-chat",
        "voice",
    ]
    guarded = piped["guarded"]
    assert guarded is not None
    assert [step.kinds() for step in guarded.steps] == [["guard"], ["model"], ["guard"]]
    assert list(guarded.models()) == ["guard-example", "thorough", "guard-example"]


def test_shared_limits(example: Path) -> None:
    config = load(example / "shared-limits.yaml")
    assert config.state.redis == "redis://:secret@redis.internal:6379/0"
    assert "secret" not in repr(config)
    assert config.state.redis_timeout == 0.05
    rates, budget, places = config.tenants[0].limit_list()
    assert (rates.count, budget.count, places.count) == ("leased", "exact", "host")
    assert (rates.on_redis_failure, budget.on_redis_failure) == ("allow", "refuse")
    assert [limit.concurrency for limit in config.models[0].limit_list()] == [256]


def test_replicas(example: Path) -> None:
    config = load(example / "replicas.yaml")
    replicas, sessions = (pool.balance for pool in config.pools)
    assert (replicas.by, replicas.bound, replicas.slow_start, replicas.panic) == ("prefix_affinity", 1.5, 60, 0.5)
    assert (sessions.by, sessions.key) == ("hash", "header:X-Session")


def test_ray(example: Path) -> None:
    (pool,) = load(example / "ray.yaml").pools
    assert isinstance(pool.runtime, LlmRuntime)
    assert pool.runtime.ray is not None
    assert (pool.runtime.on, pool.runtime.ray.lease, pool.runtime.ray.strategy) == ("ray", 120, "spread")
    assert pool.runtime.required.required() == {"CPU": 4, "memory": 8 * 2**30}
    assert (pool.runtime.replicas.min, pool.runtime.replicas.most, pool.places) == (1, 8, 32)


def test_discovery(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZONE", raising=False)
    config = load(example / "discovery.yaml")
    vllm, triton, batch = (pool.discover for pool in config.pools)
    assert config.zone == "eu-1a"
    assert vllm is not None
    assert vllm.kubernetes is not None
    assert (vllm.kubernetes.service, vllm.kubernetes.port, vllm.kubernetes.resync) == ("vllm", "8000", 60)
    assert triton is not None
    assert (triton.dns, triton.ttl_max) == ("triton.models.svc:8000", 30)
    assert batch is not None
    assert (batch.file, batch.grace) == (str(example / "batch-endpoints.yaml"), 60)
    assert [pool.balance.by for pool in config.pools] == ["load", "load", "least_request"]
    assert pools(config)["triton"] == ["http://10.0.0.9:8000"]


def test_programs(example: Path) -> None:
    config = load(example / "programs.yaml")
    qwen, small, vision = (pool.runtime for pool in config.pools)
    assert isinstance(qwen, VllmRuntime)
    assert qwen.args == ("--max-model-len", "8192", "--gpu-memory-utilization", "0.85")
    assert list(qwen.secrets) == ["HF_TOKEN"]
    assert isinstance(small, CommandRuntime)
    assert (small.listens, small.ready) == ("port", "/health")
    assert isinstance(vision, CommandRuntime)
    assert (vision.start_timeout, vision.stop_timeout) == (600, 40)
    assert [sorted(pool.serves) for pool in config.pools] == [["text"], ["text"], ["tensors"]]


def test_queue(example: Path) -> None:
    config = load(example / "queue.yaml")
    gpu, provider = config.pools
    assert gpu.queue is not None
    assert (gpu.queue.max, gpu.queue.timeout, gpu.queue.lower_priorities) == (1000, 20, 0.05)
    assert (gpu.max_in_flight, provider.max_in_flight, provider.queue) == (64, 256, None)
    assert [route.priority for route in config.models[0].routes] == ["low", None, None]
    assert [route.when_full for route in config.models[0].routes] == ["wait", "fallback", "wait"]
    assert [(tenant.share, tenant.priority) for tenant in config.tenants] == [
        (3, "normal"), (1, "normal"), (1, "low")
    ]  # fmt: skip


def test_resilient(example: Path) -> None:
    config = load(example / "resilient.yaml")
    (pool,), (route,) = config.pools, config.models[0].routes
    assert (pool.resume, pool.breaker.failures, pool.breaker.open_for) == ("text", 3, 15)
    assert route.hedge is not None
    assert (route.hedge.after, route.hedge.max, route.hedge.budget) == ("p95", 1, 0.05)
    assert (route.retry.attempts, route.retry.budget) == (3, 0.2)
    assert route.cache is not None
    assert (route.cache.ttl, route.cache.max_bytes, route.cache.share) == (600, 64 * 2**20, "tenant")


def test_tenants(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(example / "tenants.yaml")
    assert str(config.listen.admin) == "127.0.0.1:8082"
    assert config.state.database == "postgresql://headrace:secret@db.internal/headrace"
    gold, partner, trial = config.tenants
    assert config.models[0].routes[0].when.tenant == ("gold-*",)
    assert gold.limit_list()[0].tokens == RateLimit(2_000_000, 60)
    assert partner.keys[0].expires == "2027-06-30"
    assert trial.limit_list()[0].tokens == RateLimit(20_000, 86400)
    monkeypatch.setenv("ADMIN_ADDRESS", "10.0.0.1:9000")
    assert str(load(example / "tenants.yaml").listen.admin) == "10.0.0.1:9000"


def test_hosted(example: Path) -> None:
    config = load(example / "hosted.yaml")
    provider, private = config.pools
    assert provider.key is not None
    assert provider.key.get_secret_value() == "provider-key"
    assert provider.probe is None
    assert private.key is not None
    assert private.key.get_secret_value() == "private-key"
    assert private.tls is not None
    assert private.tls.ca == str(example / "tls" / "company-ca.pem")


def test_tensors(example: Path) -> None:
    config = load(example / "tensors.yaml")
    assert str(config.listen.grpc) == "127.0.0.1:8081"
    assert [pool.protocol.name for pool in config.pools] == ["oip-grpc", "oip-grpc", "oip-http"]
    assert all(pool.takes_tensors for pool in config.pools)
    assert config.pools[2].protocol == OipHttpProtocol(name="oip-http", binary=False)
    assert config.models[2].explainer == "iris-explainer"
    apps, research = config.tenants
    assert apps.limit_list()[0].rows == RateLimit(200_000, 60)
    assert research.limit_list()[0].device_ms == RateLimit(600_000, 3600)


def test_sidecar(example: Path) -> None:
    config = load(example / "sidecar.yaml")
    assert pools(config) == {"engine": ["unix:/run/engine/http.sock"]}
    assert config.drain == 25
    assert config.http.max_body == 2**20
    assert config.models[0].routes[0].retry.attempts == 1
    assert config.pools[0].connect_timeout == 0.5
