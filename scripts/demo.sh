#!/usr/bin/env bash
# What disklab does, in about five minutes: a cloud disk on this machine, changed live, broken, mended; one P30
# probed with and without ReadOnly host caching, side by side; then the main job, a real Cassandra on local and
# attached disks. Leaves nothing behind but the chart and the run with its report.
set -euo pipefail
cd "$(dirname "$0")/.."

chart=target/demo/p30-caching.html
runs=target/demo/runs

# Directories of the demo's own: it meets no disk of yours, and what it removes is its own.
folder=$(mktemp -d)
mount=$folder/mnt
as_root=()

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
disklab() {
  ${as_root[@]+"${as_root[@]}"} env "DISKLAB_RUN_DIR=$folder/run" "DISKLAB_DATA_DIR=$folder/data" .venv/bin/disklab "$@"
}
show() { printf '\033[2m$ disklab'; printf ' %s' "$@"; printf '\033[0m\n'; disklab "$@"; }

clean_up() {
  local code=$?
  trap - EXIT
  if [ -d "$folder/run" ]; then disklab clean --all --data >/dev/null 2>&1 || code=1; fi
  ${as_root[@]+"${as_root[@]}"} rm -rf --one-file-system "$folder"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

if [ "$(id -u)" != 0 ]; then
  if sudo -n true 2>/dev/null || { [ -t 0 ] && sudo true; }; then
    as_root=(sudo)
  else
    say "Real block devices need root, and sudo is not to be had: here is the part that needs none."
    show catalog P30
    show catalog azure/Standard_DS14_v2
    exit 0
  fi
fi

say "What can this machine emulate?"
show doctor

say "A Premium SSD P30 on a Standard_DS14_v2 with ReadOnly host caching, formatted and mounted"
show disk attach azure/P30 --vm azure/Standard_DS14_v2 --caching ReadOnly --size 16GiB --filesystem ext4 --mount "$mount"

say "Does it keep its promise? (two cells; the path is known to be an emulated disk)"
show probe "$mount" --rw randwrite --bs 4k --duration 3s --size 64M

say "Now at a tenth of its IOPS, while it is mounted"
show disk set data --iops 500
show probe "$mount" --rw randwrite --bs 4k --duration 3s --size 64M --profile async

say "And ten times as slow: a bad host"
show disk fail data slow 10x
show probe "$mount" --rw randwrite --bs 4k --duration 3s --size 64M --profile sync
show disk fail data recover

say "What it did, and which limit held it up"
show disk show data
show disk detach data --delete-data

say "One P30 with and without ReadOnly host caching, side by side"
mkdir -p "$(dirname "$chart")"
rm -f "$chart"
show probe --disk azure/P30 --vm azure/Standard_DS14_v2 --caching None --caching ReadOnly --quick --chart "$chart"

say "Local or attached disks for Cassandra? A real one answers: reads and writes, three kinds of disk"
show rehearse experiments/cassandra-local-or-attached-quick.yaml --quick --out "$runs"
say "The chart of the probe: $chart. The report of the rehearsal is named above."
