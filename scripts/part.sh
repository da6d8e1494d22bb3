#!/usr/bin/env bash
# part.sh NAME COMMAND...: runs the command, and says what it took in seconds and in seconds of the processors, its children
# included; the exit code is the command's. In CI a part that takes a quarter more of the processors than in scripts/parts.tsv
# runs once more, and fails when it takes as much again. part.sh --table: what all parts took since target/parts.tsv was
# emptied, and the tests that cost the processors most (tests/dearest.py). part.sh --speed: seconds of a loop that a slower
# machine takes longer for. part.sh --renew: make what they took here, on a quiet machine, the figures of scripts/parts.tsv.
set -uo pipefail
cd "$(dirname "$0")/.."
table=target/parts.tsv
figures=scripts/parts.tsv
if [ "$1" = --table ]; then
  if [ -s target/tests.tsv ]; then
    printf '%12s   %s\n' 'processor s' 'the 30 dearest tests'
    awk -F'\t' '{ seconds[$2] += $1 } END { for (test in seconds) printf "%12.1f   %s\n", seconds[test], test }' target/tests.tsv |
      sort -rn | head -n 30
  fi
  exec awk -F'\t' 'FNR == NR { if (!/^#/) before[$1] = $3; next }
    !($1 in wall) { names[++count] = $1 } { wall[$1] += $2; processor[$1] += $3; all += $3 }
    END { printf "%-16s %10s %12s %12s\n", "part", "seconds", "processor s", "on 2 quiet"
      for (i = 1; i <= count; i++) printf "%-16s %10.1f %12.1f %12s\n", names[i], wall[names[i]], processor[names[i]], before[names[i]]
      printf "%-16s %10s %12.1f\n", "together", "", all }' "$figures" "$table"
fi
# Sets `spent` to the processor seconds of this shell (line 1 of `times`) or of the children that it waited for (2).
spent_by() {
  local written
  written=$(mktemp)
  # Not through a pipe, whose shell has no children. A line is 0m1.234s 0m0.567s.
  times >"$written"
  spent=$(awk -v line="$1" 'NR == line { for (i = 1; i <= 2; i++) { split($i, at, "m"); seconds += at[1] * 60 + at[2] } print seconds }' "$written")
  rm -f "$written"
}
if [ "$1" = --speed ]; then
  for ((i = 0; i < 400000; i++)); do :; done
  spent_by 1
  echo "$spent"
  exit
fi
if [ "$1" = --renew ]; then
  # Of a part that ran more than once, as the set-up does, the dearest time counts; one that did not run keeps its figure.
  awk -F'\t' -v OFS='\t' -v speed="$("$0" --speed)" 'FNR == NR && /^#/ { print; next }
    $1 == "loop" { next }
    !($1 in took) { names[++count] = $1 }
    FNR == NR || !($1 in ran) || $3 > took[$1] { seconds[$1] = $2; took[$1] = $3; if (FNR != NR) ran[$1] }
    END { print "loop", "-", speed; for (i = 1; i <= count; i++) print names[i], sprintf("%.0f", seconds[names[i]]), sprintf("%.0f", took[names[i]]) }
  ' "$figures" "$table" >"$figures.new" && mv "$figures.new" "$figures"
  exit
fi
name=$1
shift
mkdir -p target
# Runs the command and sets `code` and `took`, its processor seconds.
run() {
  local begin before=0
  begin=$(date +%s.%N)
  spent_by 2
  before=$spent
  "$@"
  code=$?
  spent_by 2
  took=$(awk -v a="$spent" -v b="$before" 'BEGIN { printf "%.1f", a - b }')
  awk -v name="$name" -v took="$took" -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { printf "%s\t%.1f\t%s\n", name, end - begin, took }' >>"$table"
}
# Whether the part took a quarter more than its figure, for as fast a machine as this one.
is_over() {
  [ "${CI:-}" = true ] && [ -e "$figures" ] || return 1
  awk -F'\t' -v name="$name" -v took="$took" -v speed="$("$0" --speed)" '
    $1 == "loop" { slower = speed / $3; if (slower < 1) slower = 1 }
    $1 == name && took > 1.25 * $3 * slower { over = 1; printf "=== %s took %.0f s of the processors, %.0f are usual here\n", name, took, $3 * slower }
    END { exit !over }' "$figures"
}
run "$@"
if [ "$code" = 0 ] && is_over; then
  echo "=== once more: $name"
  run "$@"
  if [ "$code" = 0 ] && is_over; then
    echo "=== look for what made it dearer (the table at the end), or renew $figures on a quiet machine"
    code=1
  fi
fi
exit "$code"
