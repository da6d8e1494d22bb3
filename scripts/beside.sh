#!/usr/bin/env bash
# Runs the tests in Python that may run beside each other, six at a time since most wait for devices and servers. What
# they leave of the processors builds the tests of the crates.
set -uo pipefail
cd "$(dirname "$0")/.."
said=$(mktemp)
trap 'rm -f "$said"' EXIT
nice -n 19 cargo test --workspace --locked --profile checked --no-run >"$said" 2>&1 &
built=$!
# Once, so that not each of the processes below compiles all tests for itself.
.venv/bin/pytest --collect-only --quiet --quiet >/dev/null
# A group is what shares a server; the order of tests/conftest.py begins with what takes longest.
scripts/pytest.sh -m "not alone and not long" --numprocesses 6 --dist loadgroup --no-loadscope-reorder --durations=30 --durations-min=1
code=$?
wait "$built" || { cat "$said"; code=1; }
exit "$code"
