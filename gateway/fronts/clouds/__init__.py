"""The fronts of clouds: their clients reach every pool of chats.

bedrock.py  Amazon Bedrock, for Anthropic's messages
vertex.py   Vertex AI, for Anthropic's messages
gemini.py   the Gemini API
"""
