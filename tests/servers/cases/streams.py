"""Models that answer any number of times, and the generate extension."""

from tests.servers.exchange import infer, post, tensor

STREAMS = {
    "a decoupled model asked to infer": [infer("repeat", tensor("IN", "INT32", [2], [1, 2]))],
    "generate": [post("/v2/models/text/generate", {"TEXT": ["abc"]})],
    "generate, decoupled, one answer": [post("/v2/models/repeat/generate", {"IN": [7]})],
    "generate, decoupled, three answers": [post("/v2/models/repeat/generate", {"IN": [7, 8, 9]})],
    "generate, decoupled, no answer": [post("/v2/models/repeat/generate", {"IN": []})],
    "generate with an id": [post("/v2/models/repeat/generate", {"id": "a name", "IN": [7]})],
    "generate_stream": [post("/v2/models/repeat/generate_stream", {"IN": [7, 8, 9]})],
    "generate_stream of one": [post("/v2/models/repeat/generate_stream", {"IN": 7})],
    "generate_stream of none": [post("/v2/models/repeat/generate_stream", {"IN": []})],
    "generate_stream that fails later": [post("/v2/models/repeat/generate_stream", {"IN": [7, -1]})],
    "generate_stream that fails at once": [post("/v2/models/repeat/generate_stream", {"IN": [-1]})],
    "generate without its input": [post("/v2/models/repeat/generate", {"PROMPT": "x"})],
    "generate with a text for INT32": [post("/v2/models/repeat/generate", {"IN": "x"})],
    "generate without JSON": [post("/v2/models/repeat/generate", b"{")],
    "generate_stream without JSON": [post("/v2/models/repeat/generate_stream", b"{")],
    "generate of an unknown model": [post("/v2/models/nobody/generate", {"IN": [1]})],
    "generate_stream of an unknown model": [post("/v2/models/nobody/generate_stream", {"IN": [1]})],
}
