#!/usr/bin/env bash
# Makes a release in dist/: wheel and source, checked where no Rust is, with sums, bill of materials and signature.
# Nothing is uploaded. `scripts/release.sh --profile checked` builds faster, to try the script itself.
# --everywhere also builds wheels for aarch64 Linux and for macOS. The first is tried in QEMU where that is; docs/packages.md.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=release
everywhere=
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=$2; shift 2 ;;
    --everywhere) everywhere=1; shift ;;
    -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) echo "release: $1: no such option; there are --profile NAME and --everywhere" >&2; exit 2 ;;
  esac
done
say() { printf '== %s\n' "$*" >&2; }
fail() { echo "release: $*" >&2; exit 1; }

# Zig compiles C and links for other systems. cargo and rustc are those of PATH.
cross() {
  local target=$1 library std=() oldest=()
  # The oldest glibc with memfd_create is 2.27; left to itself, maturin links for 2.17.
  case $target in *-linux-gnu) oldest=(--compatibility manylinux_2_28) ;; esac
  library=$(rustc --print sysroot)/lib/rustlib
  if [ ! -d "$library/$target/lib" ]; then
    [ -f "$library/src/rust/library/Cargo.lock" ] || fail "no standard library for $target: \`rustup target add $target\`, or rust-src, from which it is built"
    # Stable compilers build it only when they are told to take unstable options.
    export RUSTC_BOOTSTRAP=1
    std=(-Z build-std=std,panic_abort,panic_unwind)
  fi
  say "building for $target"
  PATH="$zig/bin:$PATH" VIRTUAL_ENV="$zig" "$zig/bin/maturin" build --quiet --locked --profile "$profile" \
    --target "$target" --zig --out dist "${oldest[@]}" "${std[@]}"
}

# Runs an engine for aarch64 in QEMU: the jobs of a prediction must give the bytes that this machine's engine gives.
# 1: there is no QEMU, or no C library for it (apt-get install qemu-user libc6-arm64-cross).
tried_on_aarch64() {
  local library=${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu} own=$room/venv/bin/disklab-engine told=$room/told
  command -v qemu-aarch64 >/dev/null && [ -e "$library/lib/ld-linux-aarch64.so.1" ] || return 1
  printf '#!/bin/sh\ncase $1 in simulate) tee -a "%s" | "%s" "$@" ;; *) exec "%s" "$@" ;; esac\n' "$told" "$own" "$own" >"$room/telling"
  chmod +x "$room/telling"
  (cd "$room" && DISKLAB_ENGINE=$room/telling venv/bin/disklab predict cassandra-host-caching-quick --fidelity quick --no-bands >/dev/null)
  [ -s "$told" ] || fail "the prediction gave the engine nothing to do"
  "$own" simulate --jobs 1 <"$told" | sed 's/"wall_s":[^,}]*//' >"$room/here.jsonl"
  qemu-aarch64 -L "$library" "$1" simulate --jobs 1 <"$told" | sed 's/"wall_s":[^,}]*//' >"$room/there.jsonl"
  grep -q '"event":"cell"' "$room/here.jsonl" || fail "the engine simulated nothing: see $room/here.jsonl"
  cmp -s "$room/here.jsonl" "$room/there.jsonl" || fail "the engine for aarch64 predicts something else than this machine's"
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
if [ "$profile" = release ]; then
  [ -z "$(git status --porcelain)" ] || fail "the tree has changes that are not committed; commit or stash them"
  grep -q "^## $version\b" CHANGELOG.md || fail "CHANGELOG.md has no section '## $version'; give the unreleased changes that heading"
fi

say "building disklab $version (profile $profile)"
rm -rf dist
# Whole, whatever the tests of CI have built.
rm -f python/disklab/knob/simulator.wasm
CI='' scripts/knob.sh
.venv/bin/maturin build --quiet --locked --profile "$profile" --out dist
# No C library of this machine is asked for that older systems lack: maturin names the oldest that serves.
wheel=$(ls dist/*.whl)
git archive --format tar.gz --prefix "disklab-$version/" -o "dist/disklab-$version.tar.gz" HEAD

say "checking the wheel where no Rust is"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
wheel=$(realpath "$wheel")
python3 -m venv "$room/venv"
# The versions of the lock file, so that what is tried is what was tested.
"$room/venv/bin/pip" install --quiet --require-hashes -r requirements.lock
"$room/venv/bin/pip" install --quiet --no-deps "$wheel"
(
  cd "$room"
  bare=(env -i "PATH=$room/venv/bin:/usr/bin:/bin" "HOME=$room" LANG=C.UTF-8)
  "${bare[@]}" disklab --version | grep -qx "disklab $version" || fail "the wheel calls itself another version"
  "${bare[@]}" disklab predict cassandra-host-caching-quick --fidelity quick --no-bands >predicted.txt
  grep -q "ReadOnly" predicted.txt || fail "the wheel's prediction has no answer: see $room/predicted.txt"
  "${bare[@]}" disklab report cassandra-host-caching-quick-predict --html page.html >/dev/null
  [ -s page.html ] || fail "the wheel writes no report"
  "${bare[@]}" disklab knob knob.html >/dev/null
  [ -s knob.html ] || fail "the wheel writes no page of the simulator"
  for file in man/man1/disklab.1 bash-completion/completions/disklab zsh/site-functions/_disklab fish/vendor_completions.d/disklab.fish; do
    [ -s "venv/share/$file" ] || fail "the wheel does not install share/$file"
  done
)

if [ -n "$everywhere" ]; then
  zig=$room/zig
  python3 -m venv "$zig"
  "$zig/bin/pip" install --quiet 'maturin>=1.9,<2' 'ziglang>=0.13'
  for target in aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-apple-darwin; do cross "$target"; done
  [ "$(ls dist/*.whl | wc -l)" = 4 ] || fail "four wheels were expected: $(ls dist)"
  # Four bytes and a processor: ELF for aarch64 (EM_AARCH64, 183), Mach-O of 64 bits for x86-64 and arm64.
  for found in linux*aarch64:7f454c46:b700 macosx*arm64:cffaedfe:0c00 macosx*x86_64:cffaedfe:0700; do
    IFS=: read -r tag magic processor <<<"$found"
    other=$(ls dist/*$tag*.whl)
    at=$([ "$magic" = 7f454c46 ] && echo 18 || echo 4)
    unzip -p "$other" '*/scripts/disklab-engine' >"$room/engine"
    chmod +x "$room/engine"
    [ "$(od -An -tx1 -N4 "$room/engine" | tr -d ' ')" = "$magic" ] || fail "$other: its engine is of another system"
    [ "$(od -An -tx1 -j"$at" -N2 "$room/engine" | tr -d ' ')" = "$processor" ] || fail "$other: its engine is of another processor"
    case $tag in
      linux*) tried_on_aarch64 "$room/engine" && ran="its engine predicts the same in QEMU" || ran="built, never run" ;;
      *arm64) python3 scripts/mach_o.py "$room/engine" || fail "$other: macOS would end its engine at once"
        ran="built and signed by the linker, never run" ;;
      *) ran="built, never run" ;;
    esac
    say "$other: $ran"
  done
fi

say "bill of materials, changes, sums"
unzip -q -j -o "$wheel" '*.cyclonedx.json' -d dist
sed -n "/^## $version\b/,/^## /p" CHANGELOG.md | sed '1d;/^## /d' >dist/CHANGES.md
sum=$(sha256sum "dist/disklab-$version.tar.gz" | cut -d' ' -f1)
for recipe in recipe.yaml disklab.rb; do
  sed "1d; s/@VERSION@/$version/g; s/@SHA256@/$sum/" "packaging/$recipe" >"dist/$recipe"
done
(cd dist && sha256sum -- *.whl *.tar.gz *.json >SHA256SUMS)
if [ -n "${DISKLAB_SIGNING_KEY:-}" ]; then
  ssh-keygen -q -Y sign -f "$DISKLAB_SIGNING_KEY" -n disklab-release dist/SHA256SUMS
else
  say "not signed: name an SSH key in DISKLAB_SIGNING_KEY"
fi
say "dist/ is ready; nothing was uploaded"
ls -l dist
