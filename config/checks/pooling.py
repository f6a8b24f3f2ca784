"""Fields of pools without effect, and queues that never fill or never time out."""

from collections.abc import Iterable, Iterator
from typing import get_args

from config.checks.references import targets, within
from config.document import Document, Node
from config.problem import Problem
from config.schema.protocols import section_of, serves
from config.schema.protocols.language import OpenAIProtocol, Ranking
from config.schema.runtimes import KINDS
from config.schema.units import format_duration

AT_ONCE = "a full pool refuses at once"


def check_queues(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every field of queues without effect."""
    queued = {pool["name"].text for pool in root["pools"] if "queue" in pool or _follows_demand(pool)}
    for pool in root["pools"]:
        yield from _cap(doc, pool)
        yield from _timeout(doc, root, pool)
    for model in root["models"]:
        for route in model["routes"]:
            waits = any(target in queued for target in _pools(route))
            yield from _route(doc, route, waits=waits)
    for tenant in root["tenants"] if not queued else ():
        for name in ("share", "priority"):
            if name in tenant:
                yield doc.problem_with_key(tenant[name].place, f"has no effect: no pool has a `queue`, {AT_ONCE}")


def _follows_demand(pool: Node) -> bool:
    """Whether a pool has a queue because its replicas follow the demand."""
    replicas = pool["runtime"]["replicas"] if "runtime" in pool else pool["scale"]
    least, most = replicas["min"].value, replicas["max"].value
    return least == 0 or (most is not None and most != (1 if least is None else least))


def _cap(doc: Document, pool: Node) -> Iterator[Problem]:
    node = pool["queue"]["max_in_flight"]
    cap, most = node.read(int), pool["max_connections"].read(int)
    if cap is not None and most is not None and cap > most:
        yield doc.problem(node.place, f"has no effect: max_connections allows {most}")


def _timeout(doc: Document, root: Node, pool: Node) -> Iterator[Problem]:
    """Report a queue's timeout that is longer than any request may take."""
    if "queue" not in pool:
        return
    routes = (route for model in root["models"] for route in model["routes"] if pool["name"].text in _pools(route))
    totals = [total for route in routes if (total := route["timeout"]["total"].read(float)) is not None]
    timeout = pool["queue"]["timeout"]
    if totals and (timeout.read(float) or 0) > max(totals):
        message = f"has no effect: timeout.total ends every request before, after {format_duration(max(totals))}"
        yield doc.problem(timeout.place, message)


def _route(doc: Document, route: Node, *, waits: bool) -> Iterator[Problem]:
    for name in ("priority", "when_full"):
        if name in route and not waits:
            message = f"has no effect: none of its pools has a `queue`, {AT_ONCE}"
            yield doc.problem_with_key(route[name].place, message)
    if waits and "when_full" in route and not any(list(target["fallback"]) for target in within(route)):
        yield doc.problem_with_key(route["when_full"].place, "has no effect without a fallback")


def _pools(route: Node) -> Iterable[str | None]:
    return [target.text for target in targets(route)]


_NOT_FOR_ONE = ("balance", "outliers")
_NOT_FOR_A_RUNTIME = {
    "llm": ("tls", "protocol", "model", "key", "key_header", "probe"),
    "tensor": ("tls", "protocol", "key", "key_header", "probe"),
    "vllm": ("tls", "model", "key", "key_header"),
    "command": ("tls",),
}


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every field without effect."""
    for pool in root["pools"]:
        yield from _scale(doc, pool)
        if "runtime" in pool:
            yield from _runtime(doc, pool)
        else:
            yield from _bus(doc, pool) if protocol_of(pool) == "bus" else _protocol(doc, pool)
            yield from _key(doc, pool)
            yield from _balance(doc, pool)
            yield from _tls(doc, pool)
    yield from _zones(doc, root)
    yield from _embeddings(doc, root)
    yield from _ranking_defaults(doc, root)


def _bus(doc: Document, pool: Node) -> Iterator[Problem]:
    """Report fields that need a connection to a server: a message has no path and no key of the pool."""
    for name in ("path", "ask"):
        if name in pool["probe"]:
            message = "has no effect: the probe checks the connection to the broker"
            yield doc.problem_with_key(pool["probe"][name].place, message)
    for name in ("key", "resume"):
        if name in pool:
            yield doc.problem_with_key(pool[name].place, "has no effect on workers behind a message broker")


def _embeddings(doc: Document, root: Node) -> Iterator[Problem]:
    """Report `embeddings` of a model that does not take tensors."""
    tensors = {pool["name"].text for pool in root["pools"] if _takes_tensors(pool)}
    for model in root["models"]:
        if "embeddings" not in model:
            continue
        for pool in (pool for route in model["routes"] for pool in targets(route)):
            if pool.text is not None and pool.text not in tensors:
                message = f'has no effect on the pool "{pool.text}", whose servers take no tensors'
                yield doc.problem_with_key(model["embeddings"].place, message)
                break


def _ranking_defaults(doc: Document, root: Node) -> Iterator[Problem]:
    """Report a default model whose pools forward no such call."""
    pools = {pool["name"].text: pool for pool in root["pools"]}
    models = {model["name"].text: model for model in root["models"]}
    for call in get_args(Ranking):
        default = root["default_models"][call]
        model = models.get(default.text)
        if default.text is None or model is None or "pipeline" in model:
            continue
        for target in (pool for route in model["routes"] for pool in targets(route)):
            pool = pools.get(target.text)
            if pool is not None and not _forwards(pool, call):
                message = f'is routed to the pool "{target.text}", which does not forward {call}: add it to `passes`'
                yield doc.problem(default.place, message)
                break


def _forwards(pool: Node, call: str) -> bool:
    if pool["runtime"]["kind"].text == "llm":
        return True
    name = protocol_of(pool)
    if name == OpenAIProtocol().name:
        return call in pool["protocol"]["passes"].texts()
    return "app" in serves(name)


def _takes_tensors(pool: Node) -> bool:
    kind = KINDS.get(pool["runtime"]["kind"].text or "")
    bundled = kind.serves if kind is not None else None
    return "tensors" in (serves(protocol_of(pool)) if bundled is None else bundled)


def protocol_of(pool: Node) -> str:
    """The name of the protocol of a pool's endpoints."""
    protocol = pool["protocol"]
    return protocol.text or protocol["name"].text or OpenAIProtocol().name


def _runtime(doc: Document, pool: Node) -> Iterator[Problem]:
    runtime = pool["runtime"]
    kind = runtime["kind"].text or ""
    for name in _NOT_FOR_A_RUNTIME.get(kind, ()):
        if name in pool:
            yield doc.problem_with_key(pool[name].place, f"has no effect on a runtime of the kind {kind}: remove it")
    yield from _replicas(doc, runtime)
    if has_several(runtime["replicas"]):
        yield from _balance(doc, pool)
    else:
        message = "has no effect on a runtime of one replica: remove it, or write `replicas`"
        for name in (name for name in _NOT_FOR_ONE if name in pool):
            yield doc.problem_with_key(pool[name].place, message)
    if kind in ("vllm", "command"):
        yield from _program(doc, pool)
    elif kind == "tensor":
        yield from _tensor(doc, pool)


def _scale(doc: Document, pool: Node) -> Iterator[Problem]:
    """Report a number of endpoints that no autoscaler can change."""
    scale = pool["scale"]
    if scale.value is None:
        return
    if "runtime" in pool:
        yield doc.problem_with_key(scale.place, "has no effect on a runtime, which has `replicas`: remove it")
    elif "sleep" in scale:
        yield from _sleep(doc, pool)
    elif "discover" not in pool and "deployment" not in scale:
        message = "has no effect without `discover`, `sleep` or `deployment`: the written endpoints never change"
        yield doc.problem_with_key(scale.place, message)


def _sleep(doc: Document, pool: Node) -> Iterator[Problem]:
    """Report endpoints that the gateway cannot put to sleep, or of which it cannot read whether they sleep."""
    scale, sleep = pool["scale"], pool["scale"]["sleep"].place
    if "discover" in pool:
        yield doc.problem_with_key(sleep, "is for written `endpoints`: remove `discover`, or `sleep`")
    if protocol_of(pool) != "openai" or pool["protocol"]["dialect"].text != "vllm":
        yield doc.problem_with_key(sleep, "needs servers of vLLM: write `protocol: {name: openai, dialect: vllm}`")
    if any(field == "probe" and node.value is None for field, node in pool.fields()):
        yield doc.problem_with_key(sleep, "needs the health check, which reads whether a server sleeps: remove `probe`")
    written = len(list(pool["endpoints"]))
    for name in ("min", "max"):
        number = scale[name].read(int)
        if number is not None and number > written:
            yield doc.problem(scale[name].place, f"exceeds the {written} written `endpoints`")


def _replicas(doc: Document, runtime: Node) -> Iterator[Problem]:
    replicas = runtime["replicas"]
    if "warm_up" in replicas and runtime["kind"].text == "tensor":
        message = "has no effect on tensor models, which have their own `warmup`"
        yield doc.problem_with_key(replicas["warm_up"].place, message)


def has_several(replicas: Node) -> bool:
    """Whether a runtime can have more than one replica. An invalid value is reported elsewhere."""
    counts = (replicas.value, replicas["min"].value, replicas["max"].value)
    return any(isinstance(count, int) and count > 1 for count in counts)


def _program(doc: Document, pool: Node) -> Iterator[Problem]:
    """Report fields without effect for an external program, which is called like a server that already runs."""
    yield from _protocol(doc, pool)
    yield from _key(doc, pool)
    runtime, name = pool["runtime"], protocol_of(pool)
    protocol = section_of(name)
    if any(field == "probe" and node.value is None for field, node in pool.fields()):
        yield doc.problem(pool["probe"].place, "is needed: a runtime is ready when its probe succeeds")
    if "path" in pool["probe"]:
        message = "has no effect: the probe of a runtime uses its `ready` path"
        yield doc.problem_with_key(pool["probe"]["path"].place, message)
    if runtime["kind"].text == "vllm" and name != "openai":
        yield doc.problem(pool["protocol"].place, "vLLM speaks openai")
    if "ready" in runtime and protocol is not None and not protocol.has_paths:
        message = "has no effect: gRPC has no paths: the probe calls the readiness method"
        yield doc.problem_with_key(runtime["ready"].place, message)


def _tensor(doc: Document, pool: Node) -> Iterator[Problem]:
    if "resume" in pool:
        yield doc.problem_with_key(pool["resume"].place, "has no effect: tensors have no text to continue")


def _protocol(doc: Document, pool: Node) -> Iterator[Problem]:
    name, probe = protocol_of(pool), pool["probe"]
    protocol = section_of(name)
    if protocol is None:
        return
    if "path" in probe and not protocol.has_paths:
        message = "has no effect: gRPC has no paths: the probe calls the readiness method"
        yield doc.problem_with_key(probe["path"].place, message)
    if "ask" in probe and "text" not in protocol.serves:
        yield doc.problem_with_key(probe["ask"].place, f"has no effect: servers that speak {name} have no tokens")
    if "resume" in pool and not protocol.resumes:
        yield doc.problem_with_key(pool["resume"].place, f"has no effect: {name} has no text to continue")


def _key(doc: Document, pool: Node) -> Iterator[Problem]:
    sections = (pool, *pool["endpoints"])
    keyed = any(doc.value(each[name].place) is not None for each in sections for name in ("key", "credentials"))
    if "key_header" in pool and not keyed:
        yield doc.problem_with_key(pool["key_header"].place, "has no effect without key")


def _tls(doc: Document, pool: Node) -> Iterator[Problem]:
    urls = [endpoint.text or endpoint["url"].text for endpoint in pool["endpoints"]]
    discover = pool["discover"]
    if "tls" not in pool or protocol_of(pool) == "bus" or any(url and url.startswith("https://") for url in urls):
        return
    if "file" in discover or discover["scheme"].text == "https":
        return
    if any(urls) or "discover" in pool:
        yield doc.problem_with_key(pool["tls"].place, "has no effect: no endpoint is https://")


def _balance(doc: Document, pool: Node) -> Iterator[Problem]:
    balance = pool["balance"]
    unprobed = any(name == "probe" and node.value is None for name, node in pool.fields())
    if "panic" in balance and unprobed:
        yield doc.problem_with_key(balance["panic"].place, "has no effect: without a probe no endpoint is unhealthy")


def _regions(doc: Document, root: Node) -> Iterator[Problem]:
    """Report zones in two regions, and localities without effect."""
    nearest = [pool["balance"]["locality"] for pool in root["pools"] if pool["balance"]["locality"].text == "nearest"]
    for node in nearest:
        if "zone" not in root:
            yield doc.problem_with_key(node.place, "has no effect: the file does not set the gateway's `zone`")
    if "regions" in root and not nearest:
        yield doc.problem_with_key(root["regions"].place, "has no effect: no pool has balance.locality nearest")
    regions: dict[str, str] = {}
    for region in root["regions"]:
        for zone in region["zones"]:
            first = regions.setdefault(str(zone.value), str(region["name"].value))
            if first != str(region["name"].value):
                yield doc.problem(zone.place, f"is a zone of the region {first} too")


def _zones(doc: Document, root: Node) -> Iterator[Problem]:
    """Report zones without effect: a preference needs the zones of the gateway and of the endpoints."""
    zoned = False
    for pool in root["pools"]:
        balance = pool["balance"]
        written = [endpoint["zone"] for endpoint in pool["endpoints"] if "zone" in endpoint]
        if balance["by"].text == "hash":
            for node in (*written, balance["zone_traffic"]):
                if node.value is not None:
                    message = "has no effect: hash sends a key to the same endpoint from every zone"
                    yield doc.problem_with_key(node.place, message)
            continue
        has_own_zones = any(name in pool["discover"] for name in ("file", "kubernetes", "inference_pool"))
        zoned = zoned or has_own_zones or bool(written)
        if "zone" not in root:
            for node in (*written, balance["zone_traffic"]):
                if node.value is not None:
                    message = "has no effect: the file does not set the gateway's `zone`"
                    yield doc.problem_with_key(node.place, message)
        elif "zone_traffic" in balance and not (has_own_zones or written):
            yield doc.problem_with_key(balance["zone_traffic"].place, "has no effect: no endpoint has a zone")
    yield from _regions(doc, root)
    if "zone" in root and not zoned:
        yield doc.problem_with_key(root["zone"].place, "has no effect: no endpoint has a zone")
