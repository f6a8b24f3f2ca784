"""Servers on loopback that speak the bytes of a provider, as strict as the provider, and the table of abilities.

script.py              what any stub plays, and what it has received
table.py               every provider of the table of abilities
abilities.py           the checks of the table: clients of all doors before the gateway before a stub
openai_like.py         the hosted APIs of OpenAI's family
openai_like_errors.py  their errors
accounts.py            several keys with a quota for each model, as OpenAI reports it
aws.py                 what AWS checks in a signed request, and the services that issue its keys
oauth.py               token endpoints
azure.py               Azure OpenAI
bedrock.py             Amazon Bedrock
bedrock_row.py         Bedrock's row in the table of abilities
gemini.py              Gemini, at the Gemini API and at Vertex AI
gemini_faults.py       what Google refuses in a request
gemini_caches.py       Google's cached contents
gemini_row.py          Gemini's rows in the table of abilities
vllm.py                vLLM's OpenAI server
bedrock_shapes.py      what Bedrock refuses in a request
bedrock_adapters.py    Bedrock's adapter before the stub
issuers.py             the issuers of Google Cloud and of Microsoft Entra
anthropic_script.py    Anthropic and its clouds, in the table of abilities
anthropic_clouds.py    Anthropic's Messages at Vertex AI, Bedrock, AWS and Foundry
"""
