"""Servers on loopback that speak the bytes of a provider, as strict as the provider.

anthropic_clouds.py  Anthropic's Messages at Vertex AI, Bedrock, AWS and Foundry
"""
