#!/usr/bin/env bash
# Runs the tests in Python that may run beside each other, six at a time since most wait for devices and servers.
set -uo pipefail
cd "$(dirname "$0")/.."
# Make's own processes are no test's.
unset MAKEFLAGS MFLAGS MAKELEVEL
# Once, so that not each of the processes below compiles all tests for itself.
.venv/bin/pytest --collect-only --quiet --quiet >/dev/null
# A group is what shares a server; the order of tests/conftest.py begins with what takes longest.
exec scripts/pytest.sh -m "not alone and not long" --numprocesses 6 --dist loadgroup --no-loadscope-reorder --durations=30 --durations-min=1
