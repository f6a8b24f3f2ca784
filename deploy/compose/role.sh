#!/bin/sh
# Postgres runs it once, with an empty volume: the role of the gateway, which owns nothing.
set -eu
psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --set=password="$DATABASE_PASSWORD" <<'SQL'
CREATE ROLE headrace LOGIN PASSWORD :'password';
SQL
