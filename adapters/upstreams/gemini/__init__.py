"""Google's Gemini, at the Gemini API and at Vertex AI.

client.py           the adapter of one endpoint
cached_contents.py  the cached beginnings of its account's prompts
streams.py          its streams
paths.py            paths of both APIs
"""
