"""Credentials that the gateway makes for the servers of a pool. A pool without `credentials` imports nothing of it.

making.py          the credential of a pool
renewed.py         a value that expires, renewed ahead of its expiry
bearer.py          a token in a header
token_endpoint.py  requests to the endpoints that issue tokens
oauth.py           tokens by OAuth's client credentials
command.py         tokens that a program prints
aws.py             requests signed for AWS
sigv4.py           AWS Signature Version 4
"""
