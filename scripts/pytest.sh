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
# Beside others, a test's name ends in @ and the group that it shares a process with.
failed=$(.venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$kept" | sed 's/@[^]]*$//')
if [ -z "$failed" ] || [ "$(wc -l <<<"$failed")" -gt 3 ]; then exit "$code"; fi
echo "=== failed; each runs once more, with nothing beside it:"
echo "$failed"
mapfile -t again <<<"$failed"
.venv/bin/pytest "${again[@]}" --numprocesses 0 || exit "$code"
echo "=== UNSTABLE: failed once and then passed by themselves; please look for the race:"
echo "$failed"
