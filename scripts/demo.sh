#!/usr/bin/env bash
# What disklab does, on one question: does ReadOnly host caching pay for Cassandra's reads? First the simulator
# answers, in seconds; then a real Cassandra on emulated disks of this machine, in minutes. Leaves the two runs with
# their reports in target/demo and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

experiment=experiments/cassandra-host-caching-quick.yaml
runs=target/demo/runs

# Directories of the demo's own: it meets no disk of yours, and what it removes is its own.
folder=$(mktemp -d)
chmod 755 "$folder" # the database runs as a user of its own
as_root=()

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
disklab() { env "DISKLAB_RUN_DIR=$folder/run" "DISKLAB_DATA_DIR=$folder/data" .venv/bin/disklab "$@"; }
root_disklab() {
  ${as_root[@]+"${as_root[@]}"} env "DISKLAB_RUN_DIR=$folder/run" "DISKLAB_DATA_DIR=$folder/data" .venv/bin/disklab "$@"
}
# Rehearse. Trials that other work spoiled are shown as such, which is an answer and no failure.
rehearse() {
  local code=0
  root_disklab rehearse "$@" --out "$runs" || code=$?
  rehearsed=$(ls -td "$runs"/*-rehearse-* | head -1)
  if [ "$code" = 1 ] && spoiled && ! grep -q '"status":"failed"' "$rehearsed/trials.jsonl"; then return 0; fi
  return "$code"
}
spoiled() {
  .venv/bin/python -c 'import sys; from disklab.results import Run
sys.exit(all(one.status != "invalid" for one in Run.open(sys.argv[1]).results()))' "$rehearsed"
}
shown() { printf '\033[2m$ disklab'; printf ' %s' "$@"; printf '\033[0m\n'; }

clean_up() {
  local code=$?
  trap - EXIT
  if [ -d "$folder/run" ]; then root_disklab clean --all --data >/dev/null 2>&1 || code=1; fi
  ${as_root[@]+"${as_root[@]}"} rm -rf --one-file-system "$folder"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say "Does ReadOnly host caching pay for Cassandra's reads? Asked twice: simulated (seconds), then for real (two to six minutes)."

say "1. The simulator, at full scale: six nodes, 205 GB each"
shown predict "$experiment" --fidelity quick
disklab predict "$experiment" --fidelity quick --out "$runs"

if [ "$(id -u)" != 0 ]; then
  if sudo -n true 2>/dev/null || { [ -t 0 ] && sudo true; }; then
    as_root=(sudo)
  else
    say "A rehearsal makes real block devices, which needs root, and sudo is not available here. The prediction is all."
    exit 0
  fi
fi

say "2. A real Cassandra on emulated disks of this machine, three times each, in random order"
shown rehearse "$experiment" --quick --repeat 3
rehearse "$experiment" --quick --repeat 3
if spoiled; then
  # Something else wanted this machine meanwhile: what it spoiled is measured once more.
  say "Other work on this machine spoiled a trial; that one again"
  shown rehearse --resume "$rehearsed" --again invalid
  rehearse --resume "$rehearsed" --again invalid
  if spoiled; then say "Other work spoiled it again: its figures are shown above, marked invalid, and count in no answer."; fi
fi
say "If the two factors differ: CPU time weighs most in reads that the host cache serves. The prediction has that of the
described VMs and their client; the rehearsal, scaled to one node, has this machine's."
say "The answers and their charts are in the reports named above. Next: disklab serve, disklab advise, docs/tutorial.md"
