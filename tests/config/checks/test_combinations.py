import pytest

from config.protocols.openai import OpenAIProtocol
from config.runtimes.llm import LlmRuntime
from config.runtimes.tensor import TensorRuntime
from tests.config.conftest import RIGHT, Complaints, fields_of

TO = "to: vllm"
LATER = "to: vllm\n        {}\n      - to: vllm\n        {}"
URL = "[http://10.0.0.7:8000]"
RUNTIME = "runtime: {kind: llm, model: 'bundled:smollm2-135m-instruct'}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "version: 1",
            "version: 1\nlisten: {http: '0.0.0.0:8082'}",
            "2: listen.admin: takes the port of listen.http (0.0.0.0:8082): give it another",
        ),
        (
            "version: 1",
            "version: 1\nlisten:\n  http: localhost:1\n  admin: 127.0.0.1:1",
            "4: listen.admin: takes the port of listen.http (localhost:1): give it another",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {grpc: '127.0.0.1:8080'}",
            "2: listen.grpc: takes the port of listen.http (127.0.0.1:8080): give it another",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {grpc: '0.0.0.0:8082'}",
            "2: listen.grpc: takes the port of listen.admin (127.0.0.1:8082): give it another",
        ),
        (
            "version: 1",
            "version: 1\nauth: {demo_key: true}\nlisten: {grpc: '0.0.0.0:8081'}",
            "2: auth.demo_key: a demo key is for loopback only, and 0.0.0.0:8081 can be reached from elsewhere",
        ),
        (
            "version: 1",
            "version: 1\nauth: {demo_key: true}\nlisten: {http: '0.0.0.0:80'}",
            "2: auth.demo_key: a demo key is for loopback only, and 0.0.0.0:80 can be reached from elsewhere",
        ),
        (
            "version: 1",
            "version: 1\nauth: {demo_key: true, admin: {required: true}}\nlisten: {admin: '[::]:80'}",
            "2: auth.demo_key: a demo key is for loopback only, and [::]:80 can be reached from elsewhere",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {admin: '0.0.0.0:8082'}",
            "2: listen.admin: can be reached from elsewhere: set auth.admin.required, or listen on 127.0.0.1",
        ),
        (
            "version: 1",
            "version: 1\nauth: {admin: {metrics: true}}",
            "2: auth.admin.metrics: has no effect without required",
        ),
        (
            "version: 1",
            "version: 1\nconsole: {oidc: {issuer: 'https://x.y', client_id: c, roles: {a: operator}}}",
            "2: console.oidc: has no effect without auth.admin.required",
        ),
        (
            "version: 1",
            "version: 1\nauth: {admin: {required: true}}\nlisten: {admin: '0.0.0.0:8082'}\n"
            "console: {oidc: {issuer: 'https://x.y', client_id: c, roles: {a: operator}}}",
            "4: console.oidc: needs console.url: the provider sends browsers back to it",
        ),
        (
            "version: 1",
            "version: 1\nauth: {admin: {required: true}}\n"
            "console: {oidc: {issuer: 'https://x.y', client_id: c, scopes: [email], roles: {a: operator}}}",
            "3: console.oidc.scopes: needs the scope openid",
        ),
        (
            "version: 1",
            "version: 1\nlisten: {admin_tls: true}",
            "2: listen.admin_tls: has no effect without listen.tls",
        ),
        (
            "version: 1",
            "version: 1\nstate: {database: 'postgresql://db/x'}",
            "2: state.database: needs auth.pepper too: a pepper is generated and stored beside SQLite only",
        ),
        (
            "version: 1",
            "version: 1\nauth: {pepper: null}\nstate: {database: 'postgresql://db/x'}",
            "3: state.database: needs auth.pepper too: a pepper is generated and stored beside SQLite only",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "endpoints: [http://10.0.0.7:8000]\n    key_header: api-key",
            "7: pools[1].key_header: has no effect without key",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            RUNTIME + "\n    balance: {by: round_robin}",
            "7: pools[1].balance: has no effect on a runtime of one replica: remove it, or write `replicas`",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            RUNTIME + "\n    model: x",
            "7: pools[1].model: has no effect on a runtime of the kind llm: remove it",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: tensor, repository: models}\n    protocol: oip-grpc",
            "7: pools[1].protocol: has no effect on a runtime of the kind tensor: remove it",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: tensor, repository: models, max_num_seqs: 4}",
            f"6: pools[1].runtime.max_num_seqs: unknown field: the fields here are {fields_of(TensorRuntime)}",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: llm, model: m, repository: models}",
            f"6: pools[1].runtime.repository: unknown field: the fields here are {fields_of(LlmRuntime)}",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: tensor, repository: models, models: [a]}",
            "6: pools[1].runtime.models: has no effect: the mode is none, not explicit",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: tensor, repository: models, poll_interval: 1s}",
            "6: pools[1].runtime.poll_interval: has no effect: the mode is none, not poll",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: tensor, repository: models}\n    resume: text",
            "7: pools[1].resume: has no effect: tensors have no text to continue",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: tensor}",
            "6: pools[1].runtime.repository: is required",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: llm}",
            "6: pools[1].runtime.model: is required",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {kind: lm, model: m}",
            '6: pools[1].runtime.kind: expected llm or tensor or vllm or command (did you mean "llm"?)',
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: {model: m}",
            "6: pools[1].runtime.kind: is required",
        ),
        (
            "endpoints: [http://10.0.0.7:8000]",
            "runtime: llm",
            f"6: pools[1].runtime: expected fields ({fields_of(LlmRuntime)})",
        ),
        (
            "name: spare",
            "name: spare\n    protocol: {name: openai, binary: false}",
            f"6: pools[1].protocol.binary: unknown field: the fields here are {fields_of(OpenAIProtocol)}",
        ),
        (
            "name: spare",
            "name: spare\n    protocol: oip-http\n    probe: {ask: m}",
            "7: pools[1].probe.ask: has no effect: servers that speak oip-http have no tokens",
        ),
        (
            "name: spare",
            "name: spare\n    protocol: oip-grpc\n    probe: {path: /x}",
            "7: pools[1].probe.path: has no effect: gRPC has no paths: the probe calls the readiness method",
        ),
        (
            "name: spare",
            "name: spare\n    protocol: oip-http\n    resume: text",
            "7: pools[1].resume: has no effect: oip-http has no text to continue",
        ),
        (
            "tenants:",
            "    embeddings: {tokenizer: x.json}\ntenants:",
            '12: models[0].embeddings: has no effect on the pool "vllm", whose servers take no tensors',
        ),
        (
            "name: spare",
            "name: spare\n    balance: {by: round_robin, key: user}",
            "6: pools[1].balance.key: has no effect: round_robin uses no key, only hash does",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {bound: 120%}",
            "6: pools[1].balance.bound: has no effect: least_request binds no request to an endpoint, "
            "only hash and prefix_affinity do",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {signals: {server: vllm}}",
            "6: pools[1].balance.signals: has no effect: least_request does not use the load that servers report, "
            "only load does",
        ),
        (
            URL,
            "[{url: http://10.0.0.7:8000, zone: a}]",
            "6: pools[1].endpoints[0].zone: has no effect: the file does not set the gateway's `zone`",
        ),
        ("version: 1", "version: 1\nzone: a", "2: zone: has no effect: no endpoint has a zone"),
        (
            "name: spare",
            "name: spare\n    balance: {zone_traffic: 50%}",
            "6: pools[1].balance.zone_traffic: has no effect: the file does not set the gateway's `zone`",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {locality: nearest}",
            "6: pools[1].balance.locality: has no effect: the file does not set the gateway's `zone`",
        ),
        (
            "name: spare",
            "name: spare\n    balance: {by: hash, key: user, zone_traffic: 50%}",
            "6: pools[1].balance.zone_traffic: has no effect: hash sends a key to the same endpoint from every zone",
        ),
        (
            f"endpoints: {URL}",
            "discover: {file: x.yaml, scheme: https}",
            "6: pools[1].discover.scheme: has no effect: the file has whole URLs",
        ),
        (
            f"endpoints: {URL}",
            "discover: {kubernetes: {service: vllm}, ttl_max: 1min}",
            "6: pools[1].discover.ttl_max: has no effect: only dns and srv query a nameserver",
        ),
        (
            f"endpoints: {URL}",
            "discover: {dns: 'vllm:8000', srv: _http._tcp.vllm}",
            "6: pools[1].discover: has one source: give dns, srv, file, kubernetes or inference_pool",
        ),
        (
            f"endpoints: {URL}",
            "discover: {dns: vllm}",
            "6: pools[1].discover.dns: expected HOST:PORT, such as models.example.org:8000",
        ),
        (
            f"endpoints: {URL}",
            "discover: {dns: 'vllm:8000'}\n    tls: {}",
            "7: pools[1].tls: has no effect: no endpoint is https://",
        ),
        (
            f"endpoints: {URL}",
            RUNTIME + "\n    outliers: {}",
            "7: pools[1].outliers: has no effect on a runtime of one replica: remove it, or write `replicas`",
        ),
        (
            "name: spare",
            "name: spare\n    outliers: {failures: 0%}",
            "6: pools[1].outliers: a share of failures is above 0% and at most 100%",
        ),
        (
            "name: spare",
            "name: spare\n    probe: null\n    balance: {panic: 50%}",
            "7: pools[1].balance.panic: has no effect: without a probe no endpoint is unhealthy",
        ),
        ("name: spare", "name: spare\n    tls: {}", "6: pools[1].tls: has no effect: no endpoint is https://"),
        (
            TO,
            f"{TO}\n        when: {{tenant: []}}",
            "11: models[0].routes[0].when.tenant: is empty and matches nothing: add an entry, or remove it",
        ),
        (
            TO,
            f"{TO}\n        when: {{header: {{}}}}",
            "11: models[0].routes[0].when.header: is empty and matches nothing: add an entry, or remove it",
        ),
        (
            TO,
            f"{TO}\n        when: {{model: [chat]}}",
            '11: models[0].routes[0].when.model: has no effect: only "chat" is served here; '
            "it is for a model with aliases or a glob for a name",
        ),
        (
            TO,
            f"{TO}\n        when: {{header: {{x-a: b, X-A: c}}}}",
            "11: models[0].routes[0].when.header.X-A: is the header x-a again: keep one",
        ),
        (
            TO,
            f"{TO}\n        when: {{prompt_tokens: '<0'}}",
            "11: models[0].routes[0].when.prompt_tokens: no prompt is that short",
        ),
        (
            TO,
            f"{TO}\n        when: {{prompt_tokens: '>=0'}}",
            "11: models[0].routes[0].when.prompt_tokens: has no effect: every prompt is that long",
        ),
        (
            "[spare]",
            "[spare, vllm]",
            '11: models[0].routes[0].fallback[1]: has no effect: "vllm" is already a target of the route',
        ),
        (
            TO,
            "split: {arms: [{pool: vllm, weight: 0}, {pool: spare, weight: 1}]}",
            '11: models[0].routes[0].fallback[0]: has no effect: "spare" is already a target of the route',
        ),
        (
            TO,
            f"{TO}\n        retry:\n          attempts: 1\n          backoff: 1s",
            "13: models[0].routes[0].retry.backoff: has no effect: attempts is 1, so nothing is retried",
        ),
        (
            TO,
            f"{TO}\n        hedge: {{after: 5s}}\n        timeout: {{first_byte: 5s}}",
            "11: models[0].routes[0].hedge.after: has no effect: timeout.first_byte ends the first attempt before, "
            "after 5s",
        ),
        (
            TO,
            f"{TO}\n        hedge: {{after: 1m}}",
            "11: models[0].routes[0].hedge.after: has no effect: timeout.first_byte ends the first attempt before, "
            "after 1m",
        ),
        (
            TO,
            f"{TO}\n        hedge: {{after: 3s}}\n        timeout: {{total: 3s}}",
            "11: models[0].routes[0].hedge.after: has no effect: timeout.total ends the first attempt before, after 3s",
        ),
        (
            TO,
            f"{TO}\n        retry: {{backoff: 10s}}",
            "11: models[0].routes[0].retry.backoff: no retry waits longer than 2s",
        ),
        (
            TO,
            f"{TO}\n        hedge: {{after: 0s}}",
            "11: models[0].routes[0].hedge.after: a hedge needs a delay above 0: two requests at once double the load",
        ),
        (
            TO,
            f"{TO}\n        hedge: {{after: p20}}",
            "11: models[0].routes[0].hedge.after: expected p95, or another percentile from p50 on, "
            "or a duration such as 200ms",
        ),
        (
            TO,
            f"{TO}\n        timeout: {{first_byte: 11m}}",
            "11: models[0].routes[0].timeout.first_byte: has no effect: the total of 10m ends the request before",
        ),
        (
            TO,
            f"{TO}\n        timeout: {{idle: 6s, total: 5s}}",
            "11: models[0].routes[0].timeout.idle: has no effect: the total of 5s ends the request before",
        ),
    ],
)
def test_refused(complaints: Complaints, old: str, new: str, problem: str) -> None:
    assert old in RIGHT
    assert complaints(RIGHT.replace(old, new, 1)) == [problem]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1", "version: 1\nlisten: {http: '127.0.0.1:0', admin: '127.0.0.1:0'}"),
        ("version: 1", "version: 1\nauth: {demo_key: true}\nlisten: {http: 'localhost:80', admin: '[::1]:81'}"),
        ("version: 1", "version: 1\nauth: {admin: {required: true, metrics: true}}\nlisten: {admin: '0.0.0.0:80'}"),
        ("version: 1", "version: 1\nauth: {demo_key: false}\nlisten: {http: '0.0.0.0:80'}"),
        ("endpoints: [http://10.0.0.7:8000]", RUNTIME),
        ("[http://10.0.0.7:8000]", "[http://a, https://b]\n    tls: {}"),
        (TO, LATER.format("when: {stream: true}", "when: {tenant: [acme]}")),
        # An arm in the fallback is where the other arm's failures go: it has an effect.
        (TO, "split: {arms: [{pool: vllm, weight: 1}, {pool: spare, weight: 1}]}"),
        (TO, f"{TO}\n        retry: {{attempts: 1}}"),
        (TO, f"{TO}\n        timeout: {{total: 5s}}"),
        ("name: spare", "name: spare\n    tls: null"),
    ],
)
def test_accepted(complaints: Complaints, old: str, new: str) -> None:
    assert old in RIGHT
    assert complaints(RIGHT.replace(old, new, 1)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (TO, f"{TO}\n        timeout: {{total: 10, idle: 20m}}", "models[0].routes[0].timeout.total: "),
        (TO, f"{TO}\n        hedge: {{after: 20m}}\n        timeout: {{total: x, first_byte: x}}", ""),
        (URL, f"{URL}\n    balance: {{by: chance, bound: 150%}}", "pools[1].balance.by: "),
        (URL, f"{URL}\n    max_connections: many\n    queue: {{max_in_flight: 9999}}", "pools[1].max_connections: "),
    ],
)
def test_an_invalid_field_is_not_compared(complaints: Complaints, old: str, new: str, problem: str) -> None:
    reported = complaints(RIGHT.replace(old, new))
    assert all(problem in each and "has no effect" not in each for each in reported)
    assert reported
