"""Random choices of the page, as its reader could make them: most are possible, some are not."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from disklab.catalog import load_catalog
from disklab.knob.offer import offer

Json = dict[str, Any]

WIDE = {"nodes": [0, 1, 3, 5, 6, 1001], "copies": [1, 2, 3, 5], "threads": [0, 1, 8, 64, 300]}


@cache
def everything() -> Json:
    """Return what the page offers: three seconds of processor time."""
    return offer(load_catalog())


def choice(chance: random.Random, offered: Json) -> Json:
    """Return a choice; one in ten goes wrong in a way that a reader's can."""
    vms, disks = offered["vms"], offered["disks"]
    vm = chance.choice(list(vms))
    vendor = vm.split("/")[0]
    own = [name for name, disk in disks.items() if disk["vendor"] == vendor]
    strange = chance.random() < 0.1
    disk = chance.choice(["local", "nvme", *own * 2] if not strange else list(disks))
    found = disks.get(disk)
    size = chance.randint(10, 2000)
    engine = chance.choice(
        ["cassandra", "cassandra", "postgresql", "mariadb", "mysql", "fio", "yugabytedb"]
    )
    return {
        "engine": engine,
        "vm": vm,
        "client": chance.choice(["", chance.choice(list(vms))]),
        "nodes": chance.choice(WIDE["nodes"] if strange else [1, 3, 6, 9]),
        "copies": chance.choice(WIDE["copies"] if strange else [1, 3]),
        "disk": disk,
        "count": 1 if disk == "local" else chance.choice([1, 1, 2, 4, 40 if strange else 3]),
        "size": size if not strange else chance.choice([0, 70_000, 100]),
        "iops": chance.choice([0, 0, 3500, 10_000, size * 3]),
        "mbps": chance.choice([0, 0, 130, 250, 900]),
        "caching": chance.choice(["None", "None", "ReadOnly", "ReadWrite"]),
        "latency": chance.choice(["", *(found["latency"] if found else {})]).replace("default", ""),
        "log": chance.choice(["data", "data", "local"]),
        "ahead": chance.choice([-1, 0, 8, 64]),
        "rows": chance.choice([1000, 10_000_000, 40_000_000, 3_000_000_000 if strange else 1]),
        "columns": chance.choice([1, 5]),
        "bytes": chance.choice([40, 126, 127, 128, 818, 1500, 1700]),
        "read": chance.choice([0, 7, 50, 90, 100]),
        "keys": chance.choice(["uniform", "zipfian", "gaussian"]),
        "threads": chance.choice(WIDE["threads"] if strange else [8, 64, 300]),
        "rate": chance.choice([0, 0, 500, 20_000]),
        "slots": chance.choice([0, 64]),
        "settings": chance.choice(["", "study of 2019"]) if engine == "cassandra" else "",
        "memory": chance.choice(["cold", "warm"]),
        "cache": chance.choice(["empty", "written", "warm"]),
        "credits": chance.choice([100, 100, 50, 29, 0]),
        "rw": chance.choice(["randread", "randwrite", "randrw", "read", "write"]),
        "block": chance.choice([4, 8, 64]),
        "jobs": chance.choice([1, 4]),
        "depth": chance.choice([1, 32, 256]),
        "script": chance.choice(["oltp_read", "oltp_insert"]),
        "tables": chance.choice([0 if strange else 1, 20]),
    }
