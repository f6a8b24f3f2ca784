"""Stubs of providers: servers on loopback, as strict as the provider.

accounts.py          several keys with a quota for each model, as OpenAI reports it
anthropic_clouds.py  Anthropic's Messages at Vertex AI, Bedrock, AWS and Foundry
aws.py               what AWS checks in a signed request
oauth.py             token endpoints
"""
