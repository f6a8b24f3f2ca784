"""The fronts of clouds: their clients reach every pool of chats.

bedrock.py  Amazon Bedrock: Anthropic's messages, and Converse
vertex.py   Vertex AI, for Anthropic's messages
gemini.py   the Gemini API
"""
