#!/usr/bin/env bash
# Makes a release in dist/: wheel and source, checked where no Rust is, with sums, bill of materials and signature.
# Nothing is uploaded. `scripts/release.sh --profile checked` builds faster, to try the script itself.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=release
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=$2; shift 2 ;;
    -h | --help) sed -n '2,3s/^# //p' "$0"; exit 0 ;;
    *) echo "release: $1: no such option; --profile NAME is the only one" >&2; exit 2 ;;
  esac
done
say() { printf '== %s\n' "$*" >&2; }
fail() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
if [ "$profile" = release ]; then
  [ -z "$(git status --porcelain)" ] || fail "the tree has changes that are not committed; commit or stash them"
  grep -q "^## $version\b" CHANGELOG.md || fail "CHANGELOG.md has no section '## $version'; give the unreleased changes that heading"
fi

say "building disklab $version (profile $profile)"
rm -rf dist
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
  for file in man/man1/disklab.1 bash-completion/completions/disklab zsh/site-functions/_disklab fish/vendor_completions.d/disklab.fish; do
    [ -s "venv/share/$file" ] || fail "the wheel does not install share/$file"
  done
)

say "bill of materials, changes, sums"
unzip -q -j -o "$wheel" '*.cyclonedx.json' -d dist
sed -n "/^## $version\b/,/^## /p" CHANGELOG.md | sed '1d;/^## /d' >dist/CHANGES.md
(cd dist && sha256sum -- *.whl *.tar.gz *.json >SHA256SUMS)
if [ -n "${DISKLAB_SIGNING_KEY:-}" ]; then
  ssh-keygen -q -Y sign -f "$DISKLAB_SIGNING_KEY" -n disklab-release dist/SHA256SUMS
else
  say "not signed: name an SSH key in DISKLAB_SIGNING_KEY"
fi
say "dist/ is ready; nothing was uploaded"
ls -l dist
