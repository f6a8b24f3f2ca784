"""Keys, tokens and client certificates, and the state database that stores keys and the audit log.

credentials.py   the credential of a request, among all kinds
identity.py      the credentials that one process accepts, kept up to date
errors.py        errors of keys and teams
table.py         keys in memory, replaced whole
keys.py          the form of a key, and its hash
aws.py           access keys for clients that sign their requests
pepper.py        the secret that is mixed into hashes, and seals under it
tokens.py        verifies JSON Web Tokens
jwks.py          fetches an issuer's public keys
certificates.py  the tenant of a client certificate
scope.py         restrictions of a credential
grants.py        role, scopes and labels of a new key, validated
watch.py         reloads keys from the database in the background
state.py         the state database: engine and transactions
sealed.py        an encrypted copy of the keys on this host, for starts without the database
schema.py        the tables of keys, teams and the audit log
changes.py       the newest changes, so that only changed keys are read
store.py         issued keys in the database
listing.py       keys for `headrace keys list`
audit.py         the audit log and its chain of digests
trail.py         writes audit entries in the background
cli.py           `headrace keys`
audit_cli.py     `headrace audit`
teams_cli.py     `headrace teams`
teams/           teams of tenants with limits of their own, changed at run time
terminal.py      options and errors that these commands share
"""
