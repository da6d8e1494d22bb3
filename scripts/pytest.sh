#!/usr/bin/env bash
# Runs pytest. If one to three tests fail, runs those again by themselves, with nothing beside them, and names them: a
# test that passes then has a race or met a busy machine, which somebody has to look at, but it stops nobody's work. A
# test that fails twice fails, and so do four. RETRIES=0 runs nothing again.
set -uo pipefail
cd "$(dirname "$0")/.."
kept=.pytest_cache/v/cache/lastfailed
rm -f "$kept"
.venv/bin/pytest "$@"
code=$?
[ "$code" = 1 ] && [ "${RETRIES:-1}" != 0 ] && [ -f "$kept" ] || exit "$code"
failed=$(.venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$kept")
if [ -z "$failed" ] || [ "$(wc -l <<<"$failed")" -gt 3 ]; then exit "$code"; fi
echo "=== failed; each runs once more, with nothing beside it:"
echo "$failed"
.venv/bin/pytest --last-failed --last-failed-no-failures none --numprocesses 0 || exit "$code"
echo "=== UNSTABLE: failed once and then passed by themselves; please look for the race:"
echo "$failed"
