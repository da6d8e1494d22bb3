"""Every mistake that the issue names, word for word: `messages.txt` beside this file.

Each refusal has exit code 2 and changes nothing. `DISKLAB_UPDATE_SNAPSHOTS=1` writes the file anew.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from .conftest import Lab

pytestmark = pytest.mark.machine
MESSAGES = Path(__file__).with_name("messages.txt")
DS14 = "azure/Standard_DS14_v2"

NOTHING_ATTACHED = """
disk attach azure/P31
disk attach P30
disk attach azure/P30 --vm azure/DS14
disk attach azure/P50 --vm azure/Standard_DS14_v2 --caching ReadOnly
disk attach 'azure/Ultra(64GiB, 5000 IOPS, 200 MB/s)' --vm azure/Standard_DS14_v2 --caching ReadOnly
disk attach azure/P30 --vm azure/Standard_L8s_v2 --caching ReadOnly
disk attach azure/P30 --vm azure/Standard_D8s_v5 --caching ReadOnly
disk attach azure/P30 --caching ReadOnly
disk attach 'azure/PremiumV2(10GiB, 80000 IOPS)'
disk attach '5 x azure/P4' --vm azure/Standard_DS1_v2
disk attach local
disk attach nvme --vm azure/Standard_DS14_v2
disk attach azure/P30 --vm azure/Standard_D14_v2
disk attach '80 x azure/P50' --vm azure/Standard_D14_v2 --caching ReadOnly --stripe 5000
disk attach azure/P30 --name ../etc
disk attach azure/P30 --host 'a b'
disk attach azure/P30 --size many
disk attach azure/P30 --scale 1/0
disk attach azure/P30 --scale 2
disk attach azure/P30 --mount /proc
disk attach azure/P30 --mount /usr
disk attach azure/P30 --mount /no/such/dir
disk attach azure/P30 --size 64MiB --filesystem xfs
disk attach azure/P30 --reformat
disk attach azure/P80 --preallocate
disk attach azure/P80 --memory
disk attach azure/P30 --read-ahead 8B
disk show nothing
disk detach /dev/null
disk detach /dev/nosuch
"""

ATTACHED = """
disk attach azure/P30 --size 64MiB
disk attach azure/P30 --size 64MiB --name more --vm azure/Standard_L8s_v2
disk attach azure/P30 --size 64MiB --name more --scale 1/2
disk detach dta
disk set data
disk set data --iops 0
disk set data --throughput 200
disk set data --latency fast
disk set data --latency premium-ssd-2002
disk set data --credits 150%
disk set data --credits full
disk set data --caching ReadOnly
disk set data --read-ahead 8B
disk fail data explode
disk fail data stal
disk fail data error-rate
disk fail data error-rate 101%
disk fail data slow very
disk fail data stall soon
disk fail data recover now
disk fail data stall --disk 0
disk fail data slow 2x --disk 7
"""


def test_the_messages(lab: Lab) -> None:
    told = [refusal(lab, command) for command in NOTHING_ATTACHED.strip().splitlines()]
    lab.attach("azure/P50", "--size", "64MiB", "--vm", DS14)
    told += [refusal(lab, command) for command in ATTACHED.strip().splitlines()]
    text = "\n".join(told)
    if os.environ.get("DISKLAB_UPDATE_SNAPSHOTS"):
        MESSAGES.write_text(text)
    assert text == MESSAGES.read_text()


def refusal(lab: Lab, command: str) -> str:
    """Return a command and its message, without what differs from machine to machine."""
    message = lab.refused(*shlex.split(command)).replace(str(lab.root), "LAB")
    message = re.sub(r"has \d+[KMGT]?i?B free", "has N free", message)
    message = re.sub(r"(/\S+) has N free", "FOLDER has N free", message)
    message = re.sub(r"has \d+ bytes of memory available", "has N of memory available", message)
    return f"$ disklab {command}\n{message}"


def test_no_message_lacks_a_part() -> None:
    for line in MESSAGES.read_text().splitlines():
        if line.startswith("error: "):
            place, value, rest = line.removeprefix("error: ").split(": ", 2)
            rule, _, way_out = rest.rpartition("; ")
            assert all([place, value, rule, way_out]), line
