"""A tc(8) for hosts whose kernel has no netem: it keeps one root for an interface, and a log.

It refuses what the kernel refuses of our commands: a class or filter without the root, a band or
root that is there already, and the removal of a root of another handle.
"""

from __future__ import annotations

LOG = "/var/tmp/tc.log"
SCRIPT = """#!/bin/sh
# A network namespace of a trial has its own interfaces: nothing of it stays.
[ "$(readlink /proc/self/ns/net)" = "$(cat /var/tmp/tc.own 2>/dev/null)" ] || exit 0
say() { echo "Error: $1" >&2; exit 2; }
root=/var/tmp/tc.root bands=/var/tmp/tc.bands
[ "$2" = show ] || echo "$*" >> /var/tmp/tc.log
what="$1 $2"; shift 2
handle=; parent=; before=
for word; do
    [ "$before" = handle ] && handle=$word
    [ "$before" = parent ] && parent=$word
    before=$word
done
has() { grep -qx -- "$parent" "$bands" 2>/dev/null; }
case "$what" in
"qdisc show")
    if [ -e "$root" ]; then echo "qdisc prio $(cat "$root") root refcnt 2 bands 16"
    else echo "qdisc noqueue 0: root refcnt 2"; fi ;;
"qdisc add")
    if [ -z "$parent" ]; then [ ! -e "$root" ] || say "Exclusivity flag on, cannot modify."
        echo "$handle" > "$root"; : > "$bands"
    else [ -e "$root" ] || say "Parent Qdisc doesn't exists."
        has && say "Exclusivity flag on, cannot modify."; echo "$parent" >> "$bands"; fi ;;
"qdisc change") has || say "Qdisc not found." ;;
"qdisc del")
    if [ -z "$parent" ]; then
        [ "$(cat "$root" 2>/dev/null)" = "$handle" ] || say "Invalid handle."
        rm -f "$root" "$bands"
    else has || say "Cannot find specified qdisc on specified device."
        grep -vx -- "$parent" "$bands" > "$bands.new"; mv "$bands.new" "$bands"; fi ;;
"filter add") [ -e "$root" ] || say "Parent Qdisc doesn't exists." ;;
*) say "not asked of this stand-in: $what" ;;
esac
"""
