#!/usr/bin/env bash
# part.sh NAME COMMAND...: runs the command, and says what it took in seconds and in seconds of the processors, its children
# included; the exit code is the command's. part.sh --table: what all parts took since target/parts.tsv was emptied, and the
# tests that cost the processors most (tests/dearest.py).
set -uo pipefail
cd "$(dirname "$0")/.."
table=target/parts.tsv
if [ "$1" = --table ]; then
  if [ -s target/tests.tsv ]; then
    printf '%12s   %s\n' 'processor s' 'the 30 dearest tests'
    awk -F'\t' '{ seconds[$2] += $1 } END { for (test in seconds) printf "%12.1f   %s\n", seconds[test], test }' target/tests.tsv |
      sort -rn | head -n 30
  fi
  exec awk -F'\t' '!($1 in wall) { names[++count] = $1 } { wall[$1] += $2; processor[$1] += $3; all += $3 }
    END { printf "%-16s %10s %12s\n", "part", "seconds", "processor s"
      for (i = 1; i <= count; i++) printf "%-16s %10.1f %12.1f\n", names[i], wall[names[i]], processor[names[i]]
      printf "%-16s %10s %12.1f\n", "together", "", all }' "$table"
fi
name=$1
shift
mkdir -p target
begin=$(date +%s.%N)
"$@"
code=$?
end=$(date +%s.%N)
spent=$(mktemp)
trap 'rm -f "$spent"' EXIT
# Not through a pipe, whose shell has no children. The second line is of those that were waited for: 0m1.234s 0m0.567s.
times >"$spent"
awk -v name="$name" -v begin="$begin" -v end="$end" '
  NR == 2 { for (i = 1; i <= 2; i++) { split($i, at, "m"); seconds += at[1] * 60 + at[2] }
    printf "%s\t%.1f\t%.1f\n", name, end - begin, seconds }' "$spent" >>"$table"
exit "$code"
