"""Names that no experiment may have, past the spec's rule: no generator lets them do anything."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from disklab import spec
from disklab.advice.purchase import snippet
from disklab.cloud import first_boot
from disklab.cloud.aws.site import _filled
from disklab.cloud.aws.template import template as aws_template
from disklab.cloud.azure.template import template as azure_template
from disklab.cloud.kubernetes.manifest import Claim, job
from disklab.cloud.layout import Layout
from disklab.errors import UserError
from hcl2.api import loads

from tests.advise.test_purchase import options
from tests.programs import ended

from .test_template import TAGS, device, laid

HOSTILE = (
    "x; touch {there} #",
    "$(touch {there})",
    "`touch {there}`",
    "'; touch {there}; '",
    '"; touch {there}; "',
    "a\ntouch {there}",
    "a && touch {there}",
    "-t; touch {there}",
    "../../../etc",
    "')]; concat('",
    "[resourceGroup().location]",
    "${{image}}",
    "%{{ for x in y }}",
)
VOLUMES = ("{disks: ephemeral-os, filesystem: ext4}", "{disks: azure/P30}", "{disks: local}")


def layout_with(name: str, volume: str, host: str | None = None) -> Layout:
    layout = laid(device(volume, "azure/Standard_E8ds_v4"))
    hosts = tuple(
        replace(
            one,
            name=host or one.name,
            volumes=tuple(replace(each, name=name) for each in one.volumes),
        )
        for one in layout.hosts
    )
    return replace(layout, hosts=hosts)


@pytest.mark.parametrize("form", HOSTILE)
@pytest.mark.parametrize("volume", VOLUMES)
def test_a_first_boot_runs_no_name(form: str, volume: str, tmp_path: Path) -> None:
    name = form.format(there=tmp_path / "ran")
    (host,) = layout_with(name, volume).hosts
    script = first_boot.prepare_script(host, name)
    # What it calls, instead of what root would do: only its lines behind the functions are run.
    own = script[len(first_boot.PREPARE) :].replace("/var/lib/disklab", str(tmp_path / "state"))
    stubs = f"mkdir {tmp_path / 'state'}\n" + "".join(
        f"{program}() {{ echo /dev/null; }}\n"
        for program in ("by_lun", "temp_disk", "local_nvme", "volume", "empty", "fail")
    )
    stubs += "".join(
        f"{program}() {{ :; }}\n"
        for program in ("blockdev", "mountpoint", "umount", "wipefs", "mkdir", "useradd")
    )
    bare = {"PATH": "/usr/bin:/bin"}
    ran = ended(["bash", "-r"], env=bare, cwd=tmp_path, input=f"{stubs}{own}")
    assert not (tmp_path / "ran").exists(), ran.stderr
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def expressions(part: object) -> list[str]:
    """Return the texts that ARM would evaluate."""
    if isinstance(part, str):
        return [part] if part.startswith("[") and not part.startswith("[[") else []
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [text for each in parts for text in expressions(each)]


@pytest.mark.parametrize("form", HOSTILE)
def test_a_template_evaluates_no_name(form: str) -> None:
    name = form.format(there="/tmp/x")
    made = azure_template(layout_with(name, "{disks: azure/P30}", name), {**TAGS, "owner": name})
    assert json.loads(json.dumps(made)) == made
    for text in expressions(made):
        # Outside of its literals, in which a quote stands twice, an expression is ours.
        outside = re.sub(r"'(?:[^']|'')*'", "''", text)
        calls = set(re.findall(r"[A-Za-z]+(?=\()", outside))
        assert calls <= {"resourceId", "parameters", "reference", "resourceGroup"}, text
        assert re.fullmatch(r"\[[A-Za-z]+\([A-Za-z(), '.]*\)(\.[A-Za-z]+)?(\(\))?\]", outside) or (
            text == "[resourceGroup().location]"
        ), text
    named = [one["name"] for one in made["resources"]]
    assert "[resourceGroup().location]" not in named


@pytest.mark.parametrize("form", HOSTILE)
def test_tags_and_values_of_ec2_are_filled_once_and_tags_never(form: str) -> None:
    name = form.format(there="/tmp/x")
    made = aws_template(layout_with("data", "{disks: azure/P30}"), {**TAGS, "owner": name})
    known = {"${group}": "${image}", "${image}": "ami-1"}
    for each in made["RunInstances"]:
        filled = _filled(each, known)
        assert filled["KeyName"] == "${image}"
        assert filled["ImageId"] == "ami-1"
        tags = filled["TagSpecifications"][0]["Tags"]
        assert {"Key": "owner", "Value": name} in tags


@pytest.mark.parametrize("form", HOSTILE)
def test_a_job_of_kubernetes_runs_no_word(form: str, tmp_path: Path) -> None:
    word = form.format(there=tmp_path / "ran")
    made = job(word, Claim("fast", "10Gi", "image"), [["--bs", word]], 1.0)
    assert yaml.safe_load(yaml.safe_dump(made)) == made
    (container,) = made["spec"]["template"]["spec"]["containers"]
    *shell, script = container["command"]
    assert shlex.split(script) == ["disklab", "probe", "/data", "--bs", word]
    subprocess.run(
        [*shell, f"disklab() {{ :; }}\n{script}"], check=True, cwd=tmp_path, capture_output=True
    )
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError):
        Claim(word, word, word).check()


@pytest.mark.parametrize("form", HOSTILE)
def test_what_buys_an_option_has_regions_as_words(form: str) -> None:
    region = form.format(there="/tmp/x").replace("\n", " ")
    (name, *_) = options("P30", "E8s_v3")
    found = snippet(options("P30", "E8s_v3")[name], region)
    loads(found["Terraform (azurerm)"])
    (written,) = re.findall(r'  location            = "(.*)"', found["Terraform (azurerm)"])
    assert json.loads(f'"{written}"').replace("$${", "${").replace("%%{", "%{") == region
    words = shlex.split(found["az"].replace("\\\n", " "), comments=True)
    assert words[words.index("--location") + 1] == region


@pytest.mark.parametrize("form", HOSTILE)
def test_no_experiment_has_such_a_volume(form: str) -> None:
    name = form.format(there="/tmp/x")
    text = (
        "title: names\n"
        "cluster: {nodes: 1, vm: azure/Standard_E8ds_v4, volumes: {data: {disks: azure/P30},\n"
        f"  {json.dumps(name)}: {{disks: azure/P30}}}}}}\n"
        "database: {engine: postgresql}\n"
        "dataset: {rows: 1M, row: 1 x 1000B}\n"
        "workload: {operations: {read: 100%}, load: {threads: 1}}\n"
    )
    with pytest.raises(UserError) as refused:
        spec.parse(text, "x.yaml")
    if "\n" not in name:
        assert "x.yaml:3: cluster.volumes." in str(refused.value)
        assert "a name has 1 to 64 letters" in str(refused.value)
