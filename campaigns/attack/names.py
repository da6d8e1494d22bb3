"""Names past the spec's rule, through what is generated for clouds."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from disklab import spec
from disklab.catalog import load_catalog
from disklab.cloud import first_boot
from disklab.cloud.azure.template import template
from disklab.cloud.kubernetes.manifest import Claim, job
from disklab.cloud.layout import Layout, layout_of

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word

DEVICE = """\
title: t
device: {{vm: azure/Standard_E8ds_v4, volume: {volume}}}
workload: {{fio: {{profile: sync, rw: randread, bs: 4k}}, stop: {{duration: 1s}}}}
"""
VOLUMES = ("{disks: ephemeral-os, filesystem: ext4}", "{disks: azure/P30}", "{disks: local}")
PROGRAMS = (
    *("by_lun", "temp_disk", "local_nvme", "volume", "empty", "fail"),
    *("blockdev", "mountpoint", "umount", "wipefs", "mkdir", "useradd"),
)
CALLS = {"resourceId", "parameters", "reference", "resourceGroup"}


def layout_with(name: str, volume: str) -> Layout:
    """Return the layout of a device whose host and volume have this name."""
    experiment = spec.parse(DEVICE.format(volume=volume))
    layout = layout_of(experiment, experiment.trials("measure"), load_catalog())
    hosts = tuple(
        replace(host, name=name, volumes=tuple(replace(one, name=name) for one in host.volumes))
        for host in layout.hosts
    )
    return replace(layout, hosts=hosts)


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield names of hosts, volumes, runs and tags."""
    layouts = {volume: layout_with("n1", volume) for volume in VOLUMES}
    while True:
        name = hostile_word(chance, yard.canary)
        name += hostile_word(chance, yard.canary) if chance.random() < 0.3 else ""
        layout = layouts[chance.choice(VOLUMES)]
        hosts = tuple(
            replace(host, name=name, volumes=tuple(replace(one, name=name) for one in host.volumes))
            for host in layout.hosts
        )
        yield repr(name), partial(_attempt, name, replace(layout, hosts=hosts), yard)


def _attempt(name: str, layout: Layout, yard: Yard) -> None:
    if "\x00" not in name:
        _boot(name, layout, yard)
    made = template(layout, {"disklab-run": name})
    for text in expressions(made):
        outside = re.sub(r"'(?:[^']|'')*'", "''", text)
        if not set(re.findall(r"[A-Za-z]+(?=\()", outside)) <= CALLS or "[" in outside[1:]:
            raise HurtError(f"ARM would evaluate {text!r}")
    (container,) = job(name, Claim("fast", "10Gi", "i"), [["--bs", name]], 1.0)["spec"]["template"][
        "spec"
    ]["containers"]
    if shlex.split(container["command"][-1])[-1] != name:
        raise HurtError("a Job's command has other words than its own")


def _boot(name: str, layout: Layout, yard: Yard) -> None:
    """Run the lines of a first boot with everything that it calls put out of the way."""
    (host,) = layout.hosts
    script = first_boot.prepare_script(host, name)
    own = script[len(first_boot.PREPARE) :].replace("/var/lib/disklab", str(yard.folder / "state"))
    (yard.folder / "state").mkdir(exist_ok=True)
    stubs = "".join(f"{program}() {{ echo /dev/null; }}\n" for program in PROGRAMS)
    subprocess.run(
        ["bash", "-r"], input=f"{stubs}{own}".encode(), capture_output=True, check=False,
        cwd=yard.folder, env={"PATH": "/usr/bin:/bin"}, timeout=60,
    )  # fmt: skip
    given = first_boot.user_data(host, name, first_boot.HostKey("k", "p"), 1)
    if not given.isascii() or json.dumps(given) != f'"{given}"':
        raise HurtError("user data are no base64")


def expressions(part: Any) -> list[str]:
    """Return the texts that ARM evaluates, but for the one of the location."""
    if isinstance(part, str):
        ours = part.startswith("[") and not part.startswith("[[")
        return [part] if ours else []
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [text for one in inner for text in expressions(one)]


KIND = Kind(
    "names",
    "the name of a host, a volume, a run and a tag, past the rule of the experiment file: the "
    "script of the first boot is run by bash with its programs replaced, and the ARM template and "
    "the Job of Kubernetes are looked through. No name is run or evaluated",
    tries,
)
