"""Cohere's own client before a gateway: `cohere_of_engine.py URL KEY MODEL`. It prints orders and tokens as JSON."""

import json
import sys

import cohere  # type: ignore[import-not-found]

url, key, model = sys.argv[1:]
documents = ["a tree", "Paris, a capital", "x"]
client = cohere.ClientV2(api_key=key, base_url=url)
ranked = client.rerank(model=model, query="a capital", documents=documents, top_n=2, max_tokens_per_doc=100)
older = cohere.Client(api_key=key, base_url=url).rerank(
    model=model, query="a capital", documents=documents, return_documents=True
)
try:
    client.rerank(model=model, query="a capital", documents=[])
    refused = None
except cohere.BadRequestError as error:
    refused = error.body["error"]["param"]
print(json.dumps({
    "second": [[each.index, each.relevance_score] for each in ranked.results],
    "first": [[each.index, each.relevance_score, each.document.text] for each in older.results],
    "tokens": ranked.meta.tokens.input_tokens,
    "refused": refused,
}))  # fmt: skip
