"""What an experiment file says of fio: sections of a job, each with its block, jobs and depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from disklab.reading import digits
from disklab.spec.amounts import RATIO_SLACK, Bytes, Part, Ratio, Unreadable


def _block(value: Any) -> int:
    text = str(value).strip()
    factor = {"k": 1 << 10, "m": 1 << 20}.get(text[-1:].lower())
    number = text[:-1] if factor else text.removesuffix("KiB") or text
    if factor is None and text.endswith("KiB"):
        factor = 1 << 10
    if (whole := digits(number)) is None:
        raise Unreadable("is not a block size", "write for example 8k or 1M")
    amount = whole * (factor or 1)
    if not 512 <= amount <= 1 << 30:
        raise Unreadable("a block has 512 bytes to 1 GiB", "write for example 8k")
    return amount


SECTOR_BYTES = 512
"""What disks of clouds tell as their logical sector: the smallest direct I/O."""


FIO_LOADS = {"sync": (1, 1), "async": (4, 256)}
"""Jobs and depth. **Source:** tomaskubica.cz 2020-09, the study's sync and async fio jobs."""


FIO_READS = {"randread": 100, "randwrite": 0, "randrw": 50, "read": 100, "write": 0, "rw": 50}
"""Reads among 100 I/Os by fio's `rw`. **Source:** fio's HOWTO: `rwmixread` is 50 by default."""
FIO_MIXES = ("randrw", "rw")


Block = Annotated[
    int,
    BeforeValidator(_block),
    WithJsonSchema({"title": "block", "type": ["string", "integer"]}),
]


class BlockShare(Part):
    """One size of several."""

    block_bytes: Block = Field(alias="bs", examples=["64k"])
    """Bytes of these I/Os."""
    share_ratio: Ratio = Field(alias="share", examples=["40%"])
    """Their share of all I/Os."""


class FioSection(Part):
    """What one section of a fio job does on a device."""

    name: str = Field(default="", examples=["wal"])
    """The name of its figures, if several sections run at the same time."""
    profile: Literal["sync", "async"] = Field(default="sync", examples=["async"])
    """sync: one job, depth 1; async: four jobs, depth 256."""
    jobs: Annotated[int, Field(ge=1, le=256)] | None = Field(default=None, examples=[8])
    """Processes that run in parallel, each with its own file; without it, the profile's number."""
    depth: Annotated[int, Field(ge=1, le=1024)] | None = Field(default=None, examples=[32])
    """I/Os that each job keeps in flight; without it, the profile's number."""
    rw: Literal["randread", "randwrite", "randrw", "read", "write", "rw"] = Field(
        examples=["randwrite"]
    )
    """Direction and order; randrw and rw mix reads with writes."""
    rwmixread: Annotated[int, Field(ge=0, le=100)] | None = Field(default=None, examples=[70])
    """For randrw and rw: how many of 100 I/Os are reads; without it, 50, as in fio."""
    block_bytes: Block = Field(alias="bs", examples=["8k"])
    """Bytes of each I/O; k and M are KiB and MiB here, as in fio."""
    bssplit: tuple[BlockShare, ...] = Field(default=(), examples=[[{"bs": "4k", "share": "60%"}]])
    """Other sizes and their shares; bs is the largest of them."""
    direct: bool = Field(default=True, examples=[True])
    """Bypasses the page cache. false: goes through it; predictions assume that it is full of
    written data."""
    fsync: Annotated[int, Field(ge=1)] | None = Field(default=None, examples=[32])
    """A job makes its data durable after this many writes."""
    fdatasync: Annotated[int, Field(ge=1)] | None = Field(default=None, examples=[1])
    """The same, without metadata that is not needed to read the data."""
    rate_iops: Annotated[int, Field(ge=1)] | None = Field(default=None, examples=[500])
    """I/Os a second of each job at most."""
    size_bytes: Bytes | None = Field(default=None, alias="size", examples=["22MiB"])
    """Each job's file. Without it: 5GiB."""
    once: bool = Field(default=False, examples=[True])
    """A job ends when it has processed as many bytes as its file has: fio without time_based."""

    @model_validator(mode="after")
    def _mixed(self) -> FioSection:
        if self.rwmixread is not None and self.rw not in FIO_MIXES:
            rule = f"rwmixread is the share of reads in a mix, and {self.rw} is none"
            raise Unreadable(rule, "write rw: randrw or rw: rw, or leave rwmixread out")
        if self.fsync is not None and self.fdatasync is not None:
            raise Unreadable("a job has fsync or fdatasync", "leave one of them out")
        if self.bssplit and max(size.block_bytes for size in self.bssplit) != self.block_bytes:
            raise Unreadable("bs is the largest size of bssplit", "write the largest as bs")
        if self.bssplit and abs(sum(size.share_ratio for size in self.bssplit) - 1) > RATIO_SLACK:
            raise Unreadable("the shares of bssplit make 100 %", "write shares that add up")
        blocks = [self.block_bytes, *(size.block_bytes for size in self.bssplit)]
        if self.direct and any(block % SECTOR_BYTES for block in blocks):
            rule = "a direct I/O has whole sectors of 512 bytes"
            raise Unreadable(rule, "write a multiple of 512, or direct: false")
        return self

    @property
    def random(self) -> bool:
        """Whether places are drawn, or follow each other."""
        return self.rw.startswith("rand")

    @property
    def read_percent(self) -> int:
        """How many of 100 I/Os are reads."""
        return FIO_READS[self.rw] if self.rwmixread is None else self.rwmixread

    @property
    def load(self) -> tuple[int, int]:
        """Jobs, and the I/Os that each of them keeps under way."""
        jobs, depth = FIO_LOADS[self.profile]
        return self.jobs or jobs, self.depth or depth


class Fio(FioSection):
    """What fio does on a device."""

    beside: tuple[FioSection, ...] = Field(default=(), examples=[[{"rw": "read", "bs": "8k"}]])
    """Sections that run at the same time, on files of their own."""

    @model_validator(mode="after")
    def _named(self) -> Fio:
        names = [section.name for section in (self, *self.beside)]
        if self.beside and ("" in names or len(set(names)) < len(names)):
            rule = "sections that run at the same time have names of their own"
            raise Unreadable(rule, "give each a name")
        return self


def sections(given: Any) -> Any:
    """Return a list of sections as the first with the others beside it."""
    if not isinstance(given, list) or not given or not isinstance(given[0], Mapping):
        return given
    return {**given[0], "beside": given[1:]}
