"""Holds every locked version against databases of known vulnerabilities that are at hand.

`python scripts/audit.py --rust DIR --python DIR`: folders (or bare git directories) of
https://github.com/rustsec/advisory-db and https://github.com/pypa/advisory-database. Nothing is
fetched. It says of when each database is, and ends with 1 when a locked version is affected by
something that is not explained in `EXPLAINED`. `make audit` runs cargo-deny and pip-audit besides,
where they are installed.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

CARGO_LOCK = Path("Cargo.lock")
PYTHON_LOCK = Path("requirements.lock")
EXPLAINED: dict[str, str] = {}
"""Identifiers of advisories that do not concern disklab, and why; deny.toml has them too."""
# A database of Python's has files of some KiB, one of Rust's likewise.
MOST_FILE_BYTES = 4 << 20


@dataclass(frozen=True)
class Finding:
    """A locked version that an advisory is about."""

    package: str
    version: str
    advisory: str
    kind: str
    """`vulnerability`, or what else it is: `unmaintained`, `unsound`, `notice`, `yanked`."""
    title: str

    @property
    def counts(self) -> bool:
        """Whether it fails the audit."""
        return self.kind in ("vulnerability", "unsound") and self.advisory not in EXPLAINED


def crates(lock: str) -> set[tuple[str, str]]:
    """Return name and version of each crate that comes from a registry."""
    found = set()
    for part in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(\w+) = "([^"]*)"$', part, re.MULTILINE))
        if "source" in fields:
            found.add((fields["name"], fields["version"]))
    return found


def distributions(lock: str) -> set[tuple[str, str]]:
    """Return normalised name and version of each locked Python package."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", lock, re.MULTILINE)
    return {(canonicalize_name(name), version) for name, version in pins}


def release(text: str) -> tuple[tuple[int, int, int], bool, str]:
    """Return a Rust version so that versions compare: a pre-release is before its release."""
    numbers, _, pre = text.strip().partition("+")[0].partition("-")
    parts = [int(part) for part in numbers.split(".")]
    first, second, third = [*parts, 0, 0][:3]
    return (first, second, third), not pre, pre


def meets(version: str, requirement: str) -> bool:
    """Return whether a Rust version meets a requirement such as `>= 1.2, < 2` or `^0.3.1`."""
    return all(_meets_one(version, one.strip()) for one in requirement.split(",") if one.strip())


def _meets_one(version: str, comparator: str) -> bool:
    found = re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*([0-9][^\s]*)", comparator)
    if found is None:
        if comparator == "*":
            return True
        raise ValueError(f"{comparator!r} is not a requirement that this script knows")
    sign, text = found[1] or "^", found[2]
    have, wanted = release(version), release(text)
    given = len(text.partition("-")[0].split("."))
    plain = {">=": have >= wanted, ">": have > wanted, "<=": have <= wanted, "<": have < wanted}
    if sign in plain:
        return plain[sign]
    if sign == "=":
        return have == wanted if given == 3 else have[0][:given] == wanted[0][:given]
    same = 1 if sign == "~" and given == 1 else 2
    if sign == "^":
        # What stays is everything up to the first number that is not zero.
        same = next((i for i, part in enumerate(wanted[0], 1) if part), given)
    return have >= wanted and have[0][:same] == wanted[0][:same]


def files_of(database: Path, folder: str, names: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield package, file name and text of what a database has on some packages.

    SystemExit: it is not such a database.
    """
    command = ["git", "-C", str(database), "archive", "--format=tar", "HEAD", folder]
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{database}: not a git folder with {folder}/: {ran.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(ran.stdout)) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if len(parts) != 3 or not member.isfile() or parts[1] not in names:
                continue
            file = archive.extractfile(member)
            assert file is not None  # a file
            yield parts[1], parts[2], file.read(MOST_FILE_BYTES).decode()


def date_of(database: Path) -> str:
    """Return the day of a database's last change."""
    command = ["git", "-C", str(database), "log", "-1", "--format=%cs"]
    ran = subprocess.run(command, capture_output=True, check=True, text=True)
    return ran.stdout.strip()


def rust_findings(locked: set[tuple[str, str]], database: Path) -> Iterator[Finding]:
    """Yield what a database says of the locked crates."""
    names = {name for name, _ in locked}
    for name, file, text in files_of(database, "crates", names):
        head = text.partition("```toml")[2].partition("```")[0]
        if re.search(r"^withdrawn\s*=", head, re.MULTILINE):
            continue
        fine = [*_list(head, "patched"), *_list(head, "unaffected")]
        kind = re.search(r'^informational\s*=\s*"([^"]*)"', head, re.MULTILINE)
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        for version in sorted(version for one, version in locked if one == name):
            if not any(meets(version, one) for one in fine):
                yield Finding(
                    name,
                    version,
                    Path(file).stem,
                    kind[1] if kind else "vulnerability",
                    title[1] if title else "",
                )


def _list(head: str, key: str) -> list[str]:
    """Return a list of strings of a TOML head; the newest Python alone has a reader of its own."""
    found = re.search(rf"^{key}\s*=\s*\[(.*?)\]", head, re.MULTILINE | re.DOTALL)
    return re.findall(r'"([^"]*)"', found[1]) if found else []


def python_findings(locked: set[tuple[str, str]], database: Path) -> Iterator[Finding]:
    """Yield what a database says of the locked Python packages."""
    names = {name for name, _ in locked}
    for name, file, text in files_of(database, "vulns", names):
        told = yaml.safe_load(text)
        if told.get("withdrawn"):
            continue
        for version in sorted(version for one, version in locked if one == name):
            if any(_affected(version, one) for one in told.get("affected", [])):
                title = " ".join(str(told.get("details", "")).split())[:100]
                yield Finding(name, version, Path(file).stem, "vulnerability", title)


def _affected(version: str, part: dict[str, Any]) -> bool:
    if version in part.get("versions", []):
        return True
    have = Version(version)
    for span in part.get("ranges", []):
        if span.get("type") != "ECOSYSTEM":
            continue
        inside = False
        for event in span["events"]:
            if "introduced" in event:
                inside = inside or have >= Version(event["introduced"])
            elif _ended(have, event):
                inside = False
        if inside:
            return True
    return False


def _ended(have: Version, event: dict[str, str]) -> bool:
    if "fixed" in event:
        return have >= Version(event["fixed"])
    return "last_affected" in event and have > Version(event["last_affected"])


def main() -> int:
    """Print what the databases say; return the exit code."""
    parser = argparse.ArgumentParser(prog="python scripts/audit.py", description=__doc__)
    parser.add_argument("--rust", type=Path, help="a copy of github.com/rustsec/advisory-db")
    parser.add_argument("--python", type=Path, help="a copy of github.com/pypa/advisory-database")
    given = parser.parse_args()
    found: list[Finding] = []
    for what, database, locked, look in (
        ("crates", given.rust, crates(CARGO_LOCK.read_text()), rust_findings),
        ("Python packages", given.python, distributions(PYTHON_LOCK.read_text()), python_findings),
    ):
        if database is None:
            print(f"{what}: not looked at, no database was given ({parser.prog} --help)")
            continue
        here = sorted(look(locked, database), key=lambda one: (one.package, one.advisory))
        print(f"{what}: {len(locked)} locked versions, database of {date_of(database)}")
        for one in here:
            why = f" (explained: {EXPLAINED[one.advisory]})" if one.advisory in EXPLAINED else ""
            print(f"  {one.package} {one.version}: {one.advisory} {one.kind}: {one.title}{why}")
        found += here
    bad = [one for one in found if one.counts]
    print(f"{len(bad)} to mend" if bad else "nothing to mend")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
