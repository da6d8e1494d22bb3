"""Licences, bills of materials, and locked versions against databases of vulnerabilities."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts.audit import crates, distributions, meets, python_findings, rust_findings
from scripts.supply_chain import Part, allowed, bill, python_parts


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT OR", True),
        ("", False),
        ("MIT)", False),
    ],
)
def test_an_expression_is_allowed_when_it_can_be_met(licence: str, is_allowed: bool) -> None:
    assert allowed(licence) is is_allowed


def test_every_locked_package_has_a_licence_and_a_hash() -> None:
    parts = list(python_parts())
    assert len(parts) > 50
    assert [part.name for part in parts if not part.hashes or not part.licence] == []


def test_the_same_parts_give_the_same_bill() -> None:
    parts = [Part("cargo", "b", "1.0.0", "MIT", ("00",)), Part("pypi", "a", "2", "MIT", ("01",))]
    made = bill(parts, "1.2.3")
    assert made == bill(parts[::-1], "1.2.3")
    assert json.loads(json.dumps(made))["components"][1]["purl"] == "pkg:pypi/a@2"
    assert made["metadata"]["component"]["version"] == "1.2.3"


RUST = """```toml
[advisory]
id = "RUSTSEC-2099-0001"
package = "tokio"
date = "2099-01-01"
{more}
[versions]
patched = [">= 1.8.2, < 1.9.0", ">= 1.9.1"]
unaffected = ["< 0.2.0"]
```

# Something that must be mended
"""
PYTHON = """
id: PYSEC-2099-1
details: Something that must be mended
affected:
- package: {name: pyyaml, ecosystem: PyPI}
  ranges:
  - type: ECOSYSTEM
    events:
    - introduced: '0'
    - fixed: '5.4'
    - introduced: '6.0'
    - fixed: '6.0.2'
  versions: ['7.0.post1']
"""


def database(folder: Path, files: dict[str, str]) -> Path:
    """Make a git folder with these files."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "advisories")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


@pytest.mark.parametrize(
    ("version", "requirement", "expected"),
    [
        ("1.8.2", ">= 1.8.2, < 1.9.0", True),
        ("1.9.0", ">= 1.8.2, < 1.9.0", False),
        ("1.9.0-rc.1", ">= 1.9.0", False),
        ("0.3.9", "^0.3.1", True),
        ("0.4.0", "^0.3.1", False),
        ("2.0.0", "1.2", False),
        ("1.9.9", "1.2", True),
        ("1.2.9", "~1.2.3", True),
        ("1.3.0", "~1.2.3", False),
        ("1.2.9", "=1.2", True),
        ("0.0.4", "^0.0.3", False),
        ("3.1.4", "*", True),
    ],
)
def test_a_rust_version_meets_what_cargo_says_it_meets(
    version: str, requirement: str, expected: bool
) -> None:
    assert meets(version, requirement) is expected


def test_a_requirement_that_is_not_understood_is_no_pass() -> None:
    with pytest.raises(ValueError, match="not a requirement"):
        meets("1.0.0", "!= 1")


def test_affected_crates_are_found_and_mended_ones_are_not(tmp_path: Path) -> None:
    more = {"tokio/RUSTSEC-2099-0001.md": "", "tokio/RUSTSEC-2099-0002.md": 'withdrawn = "2099"'}
    more["other/RUSTSEC-2099-0003.md"] = ""
    where = database(
        tmp_path, {f"crates/{name}": RUST.format(more=text) for name, text in more.items()}
    )
    locked = {("tokio", one) for one in ("0.1.9", "1.8.0", "1.8.4", "1.9.0", "1.10.0")}
    found = list(rust_findings(locked, where))
    assert [(one.version, one.advisory) for one in found] == [
        ("1.8.0", "RUSTSEC-2099-0001"),
        ("1.9.0", "RUSTSEC-2099-0001"),
    ]
    assert all(one.counts for one in found)
    assert found[0].title == "Something that must be mended"


def test_affected_python_packages_are_found_and_mended_ones_are_not(tmp_path: Path) -> None:
    where = database(tmp_path, {"vulns/pyyaml/PYSEC-2099-1.yaml": PYTHON})
    wanted = {"5.3": True, "5.4": False, "6.0.1": True, "6.0.2": False, "7.0.post1": True}
    found = python_findings({("pyyaml", one) for one in wanted}, where)
    assert {one.version for one in found} == {one for one, bad in wanted.items() if bad}


def test_every_locked_version_is_read() -> None:
    """A name that the reader missed would never be found to be affected."""
    root = Path(__file__).parents[1]
    lock = (root / "Cargo.lock").read_text()
    assert len(crates(lock)) == lock.count("checksum = ")
    pins = (root / "requirements.lock").read_text()
    assert len(distributions(pins)) == sum("==" in line and line[0].isalnum()
                                           for line in pins.splitlines() if line)  # fmt: skip
