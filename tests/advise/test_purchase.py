"""What buys an option can be used: Terraform that parses, and commands that `az` has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from disklab import spec
from disklab.advice.candidates import field_of
from disklab.advice.options import Option
from disklab.advice.purchase import snippet
from disklab.advice.question import question_of
from disklab.catalog import load_catalog
from disklab.databases.calibration import calibration_for
from hcl2.api import loads
from lark import UnexpectedToken

from tests.advise.test_levers import FILE

OPTIONS = {
    "az vm create": {
        *("resource-group", "location", "zone", "name", "size", "image", "generate-ssh-keys"),
    },
    "az disk create": {
        *("resource-group", "location", "zone", "name", "size-gb", "sku"),
        *("disk-iops-read-write", "disk-mbps-read-write"),
    },
    "az vm disk attach": {"resource-group", "vm-name", "name", "caching"},
}
"""Options of these commands, as we know them: nobody has held them against the CLI itself."""


ON_AWS = {"azure/Standard_E8s_v3": "aws/m6i.4xlarge", "4 x azure/P30": '"aws/gp3(1000GiB)"'} | {
    "azure/Standard_E16s_v3": "aws/m6i.4xlarge"
}


def options(*only: str) -> dict[str, Option]:
    text = FILE.format(compaction="leveled", read=80, write=20)
    if "gp3" in only:
        for azure, aws in ON_AWS.items():
            text = text.replace(azure, aws)
    asked = question_of(spec.parse(text, Path("t.yaml")), only)
    calibration = calibration_for("cassandra")
    kept: Any = None
    found = field_of(asked, load_catalog(), calibration).candidates
    return {one.hardware: Option(one, (), kept, 3, None) for one in found}


def commands(text: str) -> list[list[str]]:
    """Return the words of each az command, as a shell without variables reads them."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip().startswith("az ")]


@pytest.mark.parametrize("disk", ["P30", "PremiumV2"])
def test_az_takes_every_command_and_option(disk: str) -> None:
    bought = {name: one for name, one in options(disk, "E8s_v3").items() if disk in name}
    assert bought
    for option in bought.values():
        text = snippet(option, "eastus")["az"]
        found = commands(text)
        assert len(found) == 3
        for words in found:
            at = next(n for n, word in enumerate(words) if word.startswith("--"))
            known = OPTIONS[" ".join(words[:at])]
            given = [word.removeprefix("--") for word in words[at:] if word.startswith("--")]
            assert set(given) <= known, words
            # Each but the switch has one value, and none is empty.
            assert len(words) - at == 2 * len(given) - ("generate-ssh-keys" in given)
            assert all(words)
        assert text.count("; do") == text.count("done")
        # VM and disk of Premium SSD v2 are in one zone.
        assert text.count("--zone 1") == (2 if disk == "PremiumV2" else 0)


@pytest.mark.parametrize(
    ("disk", "vm"), [("P30", "E8s_v3"), ("PremiumV2", "E8s_v3"), ("gp3", "m6i.4xlarge")]
)
def test_terraform_parses_and_refers_only_to_what_it_makes(disk: str, vm: str) -> None:
    bought = {name: one for name, one in options(disk, vm).items() if disk in name}
    assert bought
    for option in bought.values():
        told = snippet(option, "eastus")
        (text,) = (told[name] for name in told if name.startswith("Terraform"))
        resources = loads(text)["resource"]
        made = {
            f"{kind}.{name}".replace('"', "")
            for one in resources
            for kind, named in one.items()
            for name in named
            if not name.startswith("__")
        }
        assert len(made) == len(resources) == 3
        named = set(re.findall(r"\b((?:azurerm|aws)_\w+\.\w+)\b", text))
        assert named <= made
        with pytest.raises(UnexpectedToken):
            loads(text + "}")
