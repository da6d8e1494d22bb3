#!/usr/bin/env bash
# Runs the tests of the crates. As with scripts/pytest.sh, one to three that fail run again by themselves and are named;
# a test that fails twice fails, and so do four. RETRIES=0 runs nothing again. The build takes what others leave of the
# processors.
set -uo pipefail
cd "$(dirname "$0")/.."
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Make's own processes are no test's.
unset MAKEFLAGS MFLAGS MAKELEVEL
tests=(cargo test --workspace --locked --profile checked)
nice -n 19 "${tests[@]}" --no-run || exit
"${tests[@]}" --no-fail-fast 2>&1 | tee "$said"
code=${PIPESTATUS[0]}
[ "$code" != 0 ] && [ "${RETRIES:-1}" != 0 ] || exit "$code"
mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$said")
# What does not build, or ends without a word, is no test that failed.
broken=$(grep -c '^error: test failed' "$said")
if [ "${#failed[@]}" = 0 ] || [ "${#failed[@]}" -gt 3 ] || [ "$broken" -gt "${#failed[@]}" ]; then exit "$code"; fi
# Only the programs with failures, as cargo names them at the end: one of the others may fail for having no test to run.
read -ra programs < <(sed -nE 's/^    `-p [^ ]+ (--.*)`$/\1/p' "$said" | sort -u | paste -sd ' ')
for test in "${failed[@]}"; do
	echo "=== failed; runs once more, with nothing beside it: $test"
	"${tests[@]}" "${programs[@]}" -- --exact "$test" >"$said" 2>&1 && grep -q '^test result: ok\. [1-9]' "$said" || { cat "$said"; exit "$code"; }
done
echo "=== UNSTABLE: failed once and then passed by themselves; please look for the race:"
printf '%s\n' "${failed[@]}"
