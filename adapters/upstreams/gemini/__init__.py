"""Google's Gemini, at the Gemini API and at Vertex AI.

client.py   the adapter of one endpoint
streams.py  its streams
paths.py    paths of both APIs
"""
