#!/usr/bin/env bash
# Builds the simulator for browsers, where it is not there or older than its sources. It is not part of the set-up.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
target=wasm32-unknown-unknown
to=python/disklab/knob/simulator.wasm
sources=(Cargo.toml Cargo.lock crates/disklab-wasm crates/disklab-sim crates/disklab-disk crates/disklab-units)
if [ -e "$to" ] && [ -z "$(find "${sources[@]}" -newer "$to" -type f -print -quit)" ]; then exit 0; fi
command -v rustc >/dev/null || { echo "knob: no Rust here: run make setup, or install it from https://rustup.rs" >&2; exit 2; }
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
  { command -v rustup >/dev/null && rustup --quiet target add "$target"; } || {
    echo "knob: rustc lacks its library for browsers, and rustup cannot fetch it: rustup target add $target (without rustup: docs/knob.md)" >&2
    exit 2
  }
fi
echo "knob: building the simulator for browsers (once, 2 minutes of processor time)" >&2
# Tests ask what it answers: without LTO it takes 100 s of processor time to build instead of 141 (2026-11-28).
if [ "${CI:-}" = true ]; then export CARGO_PROFILE_WEB_LTO=off CARGO_PROFILE_WEB_CODEGEN_UNITS=16 CARGO_PROFILE_WEB_OPT_LEVEL=1; fi
# Where crates were fetched to is no part of what browsers load.
RUSTFLAGS="--remap-path-prefix=$HOME=/home --remap-path-prefix=$PWD=/disklab" cargo build --locked --profile web --target "$target" -p disklab-wasm
install -m644 "${CARGO_TARGET_DIR:-target}/$target/web/disklab_wasm.wasm" "$to.new"
mv "$to.new" "$to"
