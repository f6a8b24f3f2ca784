"""Cohere's own client before an address: `cohere_rerank.py URL KEY MODEL`. It prints the order and the bill as JSON."""

import json
import sys

import cohere  # type: ignore[import-not-found]

url, key, model = sys.argv[1:]
client = cohere.ClientV2(api_key=key, base_url=url)
ranked = client.rerank(model=model, query="a capital", documents=["a tree", "Paris, a capital"], top_n=1)
results = [[each.index, each.relevance_score] for each in ranked.results]
print(json.dumps({"results": results, "units": ranked.meta.billed_units.search_units}))
