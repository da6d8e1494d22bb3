#!/usr/bin/env bash
# Makes .venv/bin/disklab on a fresh Debian, Ubuntu or Fedora machine (macOS: predict and report only).
# Costs nothing when run again: every step first looks whether it is done.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }
export PATH="$HOME/.cargo/bin:$PATH"
# CI builds what the tests of the crates build too, without LTO: minutes less, and nothing built twice.
profile=$([ "${CI:-}" = true ] && echo checked || echo release)
newest() { find Cargo.toml Cargo.lock pyproject.toml crates installer -newer .venv/engine.installed -type f -print -quit 2>/dev/null; }
stale() { [ ! -x .venv/bin/disklab ] || [ ! -x .venv/bin/disklab-engine ] || [ ! -e .venv/engine.installed ] || [ -n "$(newest)" ]; }
# The engine is compiled while packages are fetched, as soon as there is something to compile it with. pip's own build
# finds it done, or says what is wrong with it.
early=
compile_early() {
  if [ -z "$early" ] && has cc && has cargo && stale; then
    nice -n 5 cargo build --quiet --locked --profile "$profile" -p disklab-engine --bin disklab-engine >/dev/null 2>&1 &
    early=$!
  fi
}
trap '[ -z "$early" ] || kill "$early" 2>/dev/null || true' EXIT

# Program -> package. fio is what `disklab probe` runs; mkfs.*, losetup and mount make volumes.
declare -A debian=([cc]=gcc [fio]=fio [mkfs.xfs]=xfsprogs [mkfs.ext4]=e2fsprogs [losetup]=util-linux [mount]=mount)
declare -A fedora=([cc]=gcc [fio]=fio [mkfs.xfs]=xfsprogs [mkfs.ext4]=e2fsprogs [losetup]=util-linux [mount]=util-linux-core)
missing_debian=() missing_fedora=()
compile_early
if [ "$(uname)" = Linux ]; then
  for program in "${!debian[@]}"; do
    has "$program" || { missing_debian+=("${debian[$program]}"); missing_fedora+=("${fedora[$program]}"); }
  done
  if has python3 && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then missing_debian+=(python3-venv); fi
  # The browser test of the report. Ubuntu's package of that name is a snap, which servers cannot run.
  if grep -qs '^ID=debian' /etc/os-release && ! has chromium; then missing_debian+=(chromium); fi
  # Rehearsals of Cassandra: Maven fetches it, and it runs on Java 17 to 23 (17 where there is one).
  has mvn || { missing_debian+=(maven); missing_fedora+=(maven); }
  if ! grep -qsE '^JAVA_VERSION="(17|18|19|20|21|22|23)' /usr/lib/jvm/*/release "${JAVA_HOME:-/none}/release"; then
    java=17
    if has apt-get; then apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 || { as_root apt-get update -qq; apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 || java=21; }; fi
    if has dnf; then dnf -q list java-17-openjdk-headless >/dev/null 2>&1 || java=21; fi
    missing_debian+=("openjdk-$java-jre-headless") missing_fedora+=("java-$java-openjdk-headless")
  fi
  # A server that somebody wants to rehearse is his own, and so is sysbench; CI must have them, or its tests would be
  # skipped.
  if [ "${CI:-}" = true ] && ! has groff; then missing_debian+=(groff-base) missing_fedora+=(groff-base); fi
  if [ "${CI:-}" = true ] && ! has sysbench; then missing_debian+=(sysbench) missing_fedora+=(sysbench); fi
  if [ "${CI:-}" = true ] && ! has strace; then missing_debian+=(strace) missing_fedora+=(strace); fi
  # So is a host behind SSH: its tests start a server of their own.
  if [ "${CI:-}" = true ] && ! has sshd; then missing_debian+=(openssh-server openssh-client) missing_fedora+=(openssh-server openssh-clients); fi
  # Each database says in its folder which programs it needs, one on a line.
  if [ "${CI:-}" = true ]; then
    while read -r program of_debian of_fedora; do
      has "$program" || compgen -G "/usr/lib/postgresql/*/bin/$program" >/dev/null || {
        missing_debian+=("$of_debian") missing_fedora+=("$of_fedora")
      }
    done < <(sed -nE 's/^ *- \{program: ([^,]+), debian: ([^,]+), fedora: ([^,}]+).*/\1 \2 \3/p' python/disklab/databases/*/facts.yaml)
  fi
  has python3 || { missing_debian+=(python3 python3-venv); missing_fedora+=(python3); }
  if has apt-get; then
    if [ ${#missing_debian[@]} -gt 0 ]; then
      as_root apt-get update -qq
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing_debian[@]}" >/dev/null
    fi
  elif has dnf; then
    if [ ${#missing_fedora[@]} -gt 0 ]; then as_root dnf install -y -q "${missing_fedora[@]}"; fi
  elif [ ${#missing_debian[@]} -gt 0 ]; then
    echo "setup: please install: ${missing_debian[*]} (no apt-get or dnf here)" >&2
    exit 2
  fi
fi

# Rust: the rust-version of Cargo.toml or newer.
if ! has cargo; then
  if has apt-get && apt-cache show rustup >/dev/null 2>&1; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq rustup >/dev/null
    rustup default stable
  elif has curl; then
    curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy
  else
    echo "setup: no cargo and no curl; install Rust from https://rustup.rs and run this again" >&2
    exit 2
  fi
fi

compile_early
if [ ! -x .venv/bin/python ]; then python3 -m venv .venv; fi
# The stamp is a copy of the lock file: equal means that the environment is the locked one.
if ! cmp -s requirements.lock .venv/requirements.installed; then
  .venv/bin/python -m pip install --quiet --require-hashes -r requirements.lock
  cp requirements.lock .venv/requirements.installed
fi

# The engine and the package. cargo decides what is stale; a fresh tree costs seconds, an unchanged one nothing.
if stale; then
  if [ -n "$early" ]; then wait "$early" || true; early=; fi
  # The time before the build: what is edited meanwhile is newer.
  touch .venv/engine.building
  PATH="$PWD/.venv/bin:$PATH" MATURIN_PEP517_ARGS="--locked --profile $profile" \
    .venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
  mv .venv/engine.building .venv/engine.installed
fi
