#!/bin/sh
# disklab itself over ublk: attach, detach, and clean after the engine was killed, and after it hung.
# Runs in the emulated machine. Ends with 1 at the first thing that is not as it must be.
mkdir -p /mnt/disk /var/lib

fail() { echo "  FAILED  $1"; exit 1; }
# must WHAT COMMAND...: shows what the command said only when it fails.
must() {
  what=$1
  shift
  "$@" >/tmp/said 2>&1 || { cat /tmp/said; fail "$what"; }
  echo "  ok      $what"
}
attach() {
  disklab disk attach azure/P10 --size 256MiB --transport ublk --no-calibrate --mount /mnt/disk "$@"
}
engine() { cut -d' ' -f1 /run/disklab/hosts/default/pid; }
is_kept() { [ "$(md5sum </mnt/disk/file)" = "$sum" ]; }
nothing_left() {
  ! ls /dev/ublkc* /dev/ublkb* && ! grep ublk /proc/mounts && [ -z "$(ls /run/disklab/hosts)" ]
}

must "attach makes, formats and mounts a ublk device" attach --filesystem ext4
must "the mounted device is a ublk device" grep -q "^/dev/ublkb0 /mnt/disk ext4 " /proc/mounts
dd if=/dev/urandom of=/mnt/disk/file bs=1M count=4 2>/dev/null
sum=$(md5sum </mnt/disk/file)
must "detach takes it away" disklab disk detach data
must "detach leaves nothing" nothing_left

must "attach finds it again" attach
must "detach kept the data" is_kept
kill -9 "$(engine)"
must "clean after kill -9" disklab clean
must "clean leaves nothing" nothing_left

must "attach after clean" attach
must "clean kept the data" is_kept
kill -STOP "$(engine)"
must "clean --all while the engine hangs" disklab clean --all
must "clean --all leaves nothing" nothing_left
