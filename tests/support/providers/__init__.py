"""Stubs of providers: servers on loopback, as strict as the provider.

anthropic_clouds.py  Anthropic's Messages at Vertex AI, Bedrock, AWS and Foundry
aws.py               what AWS checks in a signed request
bedrock.py           Amazon Bedrock
bedrock_shapes.py    what Bedrock refuses in a request
bedrock_adapters.py  Bedrock's adapter before the stub
oauth.py             token endpoints
"""
