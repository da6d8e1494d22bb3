"""fio's job files and its JSON from elsewhere: changed in their bytes, words and numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from disklab import spec
from disklab.probe.fio_results import read
from disklab.spec.fio_file import On, experiment_text

from campaigns.attack.kind import HurtError, Kind, Try, Yard
from campaigns.attack.words import hostile_word
from campaigns.fuzz.mutation import changed_bytes, changed_value

ON = On(("azure/P30",), "azure/Standard_E16s_v5")
MOST_LINE = 1000
LINES = {
    "rw": "randrw", "bs": "4k", "size": "1g", "runtime": "60", "numjobs": "4", "iodepth": "32",
    "direct": "1", "fsync": "8", "rwmixread": "70", "rate_iops": "10,20", "bssplit": "4k/60:8k/40",
    "filename": "data", "ioengine": "libaio", "thinktime": "1ms", "random_distribution": "zipf:1.1",
}  # fmt: skip
NUMBERS = (
    *("²", "٣", "9" * 400, "-1", "1e9", "0x10", "", "NaN"),
    *("4²", "9999999p", "1.5", str(1 << 64)),
)
TIMES = {"N": 1000, "min": 10, "max": 900, "mean": 100.0, "stddev": 5.0,
         "percentile": {"50.000000": 100, "99.000000": 800}, "bins": {"100": 1000}}  # fmt: skip
SIDE = {"total_ios": 1000, "io_bytes": 4096000, "runtime": 1000, "clat_ns": TIMES}
OUTPUT = {
    "fio version": "fio-3.33",
    "global options": {},
    "jobs": [
        {
            "jobname": "job",
            "groupid": 0,
            "job options": LINES,
            "read": SIDE,
            "write": SIDE,
            "sync": {},
        }
    ],
}


def tries(chance: random.Random, yard: Yard) -> Iterator[tuple[str, Try]]:
    """Yield job files and outputs in turns."""
    while True:
        content = _job(chance, yard.canary)
        yield f"job file {content!r}", partial(_attempt_job, yard.folder / "job.fio", content)
        value = OUTPUT
        for _ in range(chance.choice((1, 2, 4))):
            value = changed_value(value, chance)
        written = json.dumps(value).encode()
        if chance.random() < 0.3:
            written = changed_bytes(written, chance)
        yield f"output {written!r}", partial(_attempt_output, yard.folder / "out.json", written)


def _job(chance: random.Random, there: Path) -> bytes:
    names = chance.sample(list(LINES), chance.randint(2, len(LINES)))
    lines = ["[job]"]
    for name in names:
        strange = chance.choice([*NUMBERS, hostile_word(chance, there)])
        lines.append(f"{name}={strange if chance.random() < 0.1 else LINES[name]}")
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    return changed_bytes(content, chance) if chance.random() < 0.3 else content


def _attempt_job(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    text = experiment_text(file, ON)
    if max(map(len, text.splitlines()), default=0) > MOST_LINE:
        raise HurtError(f"a line of {max(map(len, text.splitlines()))} letters was made of it")
    spec.parse(text, file.with_suffix(".yaml")).trials("predict")


def _attempt_output(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    read(file, ON)


KIND = Kind(
    "fio files",
    "job files and outputs of fio with changed bytes, words of a shell and numbers that are none: "
    "read, or refused in words; what is read is an experiment file that is read again",
    tries,
)
