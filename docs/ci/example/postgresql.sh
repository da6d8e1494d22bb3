#!/bin/sh
# A new PostgreSQL in this folder, and 200 transactions of pgbench. Not as root: the server refuses that.
set -eu
PATH=$(dirname "$(find /usr/lib/postgresql -name pg_ctl | sort | tail -n 1)"):$PATH
initdb --pgdata=data --auth=trust --no-sync >/dev/null
pg_ctl --pgdata=data --wait --silent --log=log --options="-k '$PWD' -c listen_addresses=''" start
trap 'pg_ctl --pgdata=data --mode=fast --silent stop' EXIT
pgbench --host="$PWD" --initialize --scale=1 --quiet postgres 2>/dev/null
pgbench --host="$PWD" --transactions=200 postgres
