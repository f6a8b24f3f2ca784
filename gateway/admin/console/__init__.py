"""The console: pages for operators and tenants' admins, on the admin listener under `/console/`.

front.py       the page, its files under `static/` with entity tags, and the headers that protect every response
sign_in.py     sign-in with a key
oidc.py        sign-in by an OpenID provider: its description, codes and ID tokens
quickstart.py  the address, the models and a key for a first request
live.py        the event stream of the live screen
static/        the page: plain ES modules, no build step, no other host

A new screen is one file in `static/screens/` and one line in the table of `static/screens.js`. The file's default
export is a Preact component; it receives `session` (tenant, role), `parts` and `query` (the rest of the address), and
`go(…parts)` and `goWith(parts, query)`. `static/html.js` has `html` and the hooks, `static/api.js` the client of the
admin API, `static/table.js` a table that pages by key, `static/parts.js` fields, notices and dialogs. The shell shows
that the gateway does not respond, or that the session is over: a screen does not. A screen calls paths under `/admin`
with the rights of the session: `gateway.admin.api.guard` authorizes a session as it does a key, so a handler needs
nothing more. Texts of servers, tenants and models are hostile: `html` escapes them; nothing sets `innerHTML`, a style
or a link from data. Tests of a screen use `tests/gateway/admin/console/conftest.py`.
"""
