"""Finds fields of pools that have no effect because of other fields."""

from collections.abc import Iterator

from config.checks.references import targets
from config.document import Document
from config.node import Node
from config.problem import Problem
from config.protocols import section_of, serves
from config.protocols.openai import OpenAIProtocol
from config.runtimes import KINDS

_NOT_FOR_ONE = ("tls", "balance", "outliers")
_NOT_FOR_A_RUNTIME = {
    "llm": (*_NOT_FOR_ONE, "protocol", "model", "key", "key_header", "probe"),
    "tensor": (*_NOT_FOR_ONE, "protocol", "key", "key_header", "probe"),
    "vllm": (*_NOT_FOR_ONE, "model", "key", "key_header"),
    "command": _NOT_FOR_ONE,
}
_BOUND = ("hash", "prefix_affinity")


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every field without effect."""
    for pool in root["pools"]:
        if "runtime" in pool:
            yield from _runtime(doc, pool)
        else:
            yield from _protocol(doc, pool)
            yield from _key(doc, pool)
            yield from _balance(doc, pool)
            yield from _tls(doc, pool)
            yield from _discover(doc, pool)
    yield from _zones(doc, root)
    yield from _embeddings(doc, root)


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
    if kind in ("vllm", "command"):
        yield from _program(doc, pool)
    elif kind == "tensor":
        yield from _tensor(doc, pool)


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
    runtime = pool["runtime"]
    mode = runtime["mode"].read(str)
    for name, required in (("models", "explicit"), ("poll_interval", "poll")):
        if name in runtime and mode not in (required, None):
            yield doc.problem_with_key(runtime[name].place, f"has no effect: the mode is {mode}, not {required}")
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
    if "key_header" in pool and doc.value(pool["key"].place) is None:
        yield doc.problem_with_key(pool["key_header"].place, "has no effect without key")


def _tls(doc: Document, pool: Node) -> Iterator[Problem]:
    urls = [endpoint.text or endpoint["url"].text for endpoint in pool["endpoints"]]
    discover = pool["discover"]
    if "tls" not in pool or any(url and url.startswith("https://") for url in urls):
        return
    if "file" in discover or discover["scheme"].text == "https":
        return
    if any(urls) or "discover" in pool:
        yield doc.problem_with_key(pool["tls"].place, "has no effect: no endpoint is https://")


def _balance(doc: Document, pool: Node) -> Iterator[Problem]:
    balance = pool["balance"]
    by = balance["by"].read(str)
    if by is None:
        return
    if "key" in balance and by != "hash":
        yield doc.problem_with_key(balance["key"].place, f"has no effect: {by} uses no key, only hash does")
    if "bound" in balance and by not in _BOUND:
        message = f"has no effect: {by} binds no request to an endpoint, only hash and prefix_affinity do"
        yield doc.problem_with_key(balance["bound"].place, message)
    if "signals" in balance and by != "load":
        message = f"has no effect: {by} does not use the load that servers report, only load does"
        yield doc.problem_with_key(balance["signals"].place, message)
    unprobed = any(name == "probe" and node.value is None for name, node in pool.fields())
    if "panic" in balance and unprobed:
        yield doc.problem_with_key(balance["panic"].place, "has no effect: without a probe no endpoint is unhealthy")


def _discover(doc: Document, pool: Node) -> Iterator[Problem]:
    discover = pool["discover"]
    if "file" in discover and "scheme" in discover:
        yield doc.problem_with_key(discover["scheme"].place, "has no effect: the file has whole URLs")
    if "dns" not in discover and "srv" not in discover:
        for name in ("nameserver", "ttl_min", "ttl_max"):
            if name in discover:
                yield doc.problem_with_key(discover[name].place, "has no effect: only dns and srv query a nameserver")


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
        has_own_zones = any(name in pool["discover"] for name in ("file", "kubernetes"))
        zoned = zoned or has_own_zones or bool(written)
        if "zone" not in root:
            for node in (*written, balance["zone_traffic"]):
                if node.value is not None:
                    message = "has no effect: the file does not set the gateway's `zone`"
                    yield doc.problem_with_key(node.place, message)
        elif "zone_traffic" in balance and not (has_own_zones or written):
            yield doc.problem_with_key(balance["zone_traffic"].place, "has no effect: no endpoint has a zone")
    if "zone" in root and not zoned:
        yield doc.problem_with_key(root["zone"].place, "has no effect: no endpoint has a zone")
