"""Credentials that the gateway makes for the servers of a pool. A pool without `credentials` imports nothing of it.

making.py             the credential of a pool
renewed.py            a value that expires, renewed ahead of its expiry
bearer.py             a token in header fields
token_endpoint.py     requests to the endpoints that issue tokens and keys
oauth.py              tokens by OAuth's client credentials
command.py            tokens that a program prints
aws.py                requests signed for AWS
sigv4.py              AWS Signature Version 4
aws_keys.py           the sources of access keys, in their order
aws_files.py          the files of AWS's tools
aws_services.py       STS, and the metadata of containers and instances
google.py             tokens for Google Cloud
google_federation.py  the token of another issuer, exchanged for one of Google
azure.py              tokens of Microsoft Entra
"""
