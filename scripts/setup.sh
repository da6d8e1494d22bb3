#!/usr/bin/env bash
# Makes .venv/bin/disklab on a fresh Debian, Ubuntu or Fedora machine (macOS: predict and report only).
# Costs nothing when run again: every step first looks whether it is done.
# --quick: what the demo needs, and no more (no tools of developers, no browser).
# Without it, the rest follows.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=
if [ "${1:-}" = --quick ]; then quick=yes; fi
lock=${quick:+requirements.run.lock}
lock=${lock:-requirements.lock}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }
export PATH="$HOME/.cargo/bin:$PATH"
# What the tests of the crates build too, without LTO: minutes less, and nothing built twice.
profile=checked
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
packages=
trap 'for job in $early $packages; do kill "$job" 2>/dev/null || true; done' EXIT

# What the build needs comes first, the rest beside it.
install_debian() {
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
install() { # names of Debian's packages, "--", names of Fedora's
  local debian_names=()
  while [ "$1" != -- ]; do debian_names+=("$1"); shift; done
  shift
  if has apt-get; then
    if [ ${#debian_names[@]} -gt 0 ]; then install_debian "${debian_names[@]}"; fi
  elif has dnf; then
    if [ $# -gt 0 ]; then as_root dnf install -y -q "$@"; fi
  elif [ ${#debian_names[@]} -gt 0 ]; then
    echo "setup: please install: ${debian_names[*]} (no apt-get or dnf here)" >&2
    return 2
  fi
}

compile_early
missing_debian=() missing_fedora=()
need() { has "$1" || { missing_debian+=("$2"); missing_fedora+=("$3"); }; }
if [ "$(uname)" = Linux ]; then
  need cc gcc gcc
  has python3 || { missing_debian+=(python3 python3-venv); missing_fedora+=(python3); }
  if has python3 && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then missing_debian+=(python3-venv); fi
  install ${missing_debian[@]+"${missing_debian[@]}"} -- ${missing_fedora[@]+"${missing_fedora[@]}"}
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

missing_debian=() missing_fedora=()
if [ "$(uname)" = Linux ]; then
  # fio is what `disklab probe` runs; mkfs.*, losetup and mount make volumes.
  need fio fio fio
  need mkfs.xfs xfsprogs xfsprogs
  need mkfs.ext4 e2fsprogs e2fsprogs
  need losetup util-linux util-linux
  need mount mount util-linux-core
  # The browser test of the report. Ubuntu's package of that name is a snap, which servers cannot run.
  if [ -z "$quick" ] && grep -qs '^ID=debian' /etc/os-release && ! has chromium; then missing_debian+=(chromium); fi
  # Rehearsals of Cassandra: Maven fetches it, and it runs on Java 17 to 23 (17 where there is one).
  need mvn maven maven
  if ! grep -qsE '^JAVA_VERSION="(17|18|19|20|21|22|23)' /usr/lib/jvm/*/release "${JAVA_HOME:-/none}/release"; then
    java=17
    if has apt-get; then apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 || { as_root apt-get update -qq; apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 || java=21; }; fi
    if has dnf; then dnf -q list java-17-openjdk-headless >/dev/null 2>&1 || java=21; fi
    missing_debian+=("openjdk-$java-jre-headless") missing_fedora+=("java-$java-openjdk-headless")
  fi
  # A server that somebody wants to rehearse is his own, and so are sysbench and a host behind SSH; CI must have them,
  # or its tests would be skipped. Each database says in its folder which programs it needs, one on a line.
  if [ "${CI:-}" = true ]; then
    need groff groff-base groff
    need sysbench sysbench sysbench
    has sshd || { missing_debian+=(openssh-server openssh-client) missing_fedora+=(openssh-server openssh-clients); }
    while read -r program of_debian of_fedora; do
      compgen -G "/usr/lib/postgresql/*/bin/$program" >/dev/null || need "$program" "$of_debian" "$of_fedora"
    done < <(sed -nE 's/^ *- \{program: ([^,]+), debian: ([^,]+), fedora: ([^,}]+).*/\1 \2 \3/p' python/disklab/databases/*/facts.yaml)
  fi
  install ${missing_debian[@]+"${missing_debian[@]}"} -- ${missing_fedora[@]+"${missing_fedora[@]}"} &
  packages=$!
fi

if [ ! -x .venv/bin/python ]; then python3 -m venv .venv; fi
# The stamp is a copy of the lock file: equal means that the environment is the locked one, or has more than is asked for.
if ! cmp -s "$lock" .venv/requirements.installed && ! cmp -s requirements.lock .venv/requirements.installed; then
  # Python compiles what is imported; most of what the packages hold never is.
  .venv/bin/python -m pip install --quiet --no-compile --require-hashes -r "$lock"
  cp "$lock" .venv/requirements.installed
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
if [ -n "$packages" ]; then
  job=$packages packages=
  wait "$job"
fi
