"""The host profile: the JSON form of `crates/disklab-disk/src/profile.rs`, field by field."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Caching = Literal["None", "ReadOnly", "ReadWrite"]
Medium = Literal["remote", "temp", "nvme"]
Scope = Literal["all", "read", "write"]
Unit = Literal["ios", "bytes"]

UnsignedInt = Annotated[int, Field(ge=0, lt=1 << 64)]
"""What a `u64` of the engine holds."""


class Profile(BaseModel):
    """A frozen part of a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Distribution(Profile):
    """Service times: pairs of parts per million and nanoseconds, and a term for each KiB over 4."""

    quantiles_ppm_ns: list[tuple[int, UnsignedInt]] = Field(min_length=1)
    per_kib_ns: UnsignedInt = 0


class Latency(Profile):
    """Service times without any wait, by operation."""

    read: Distribution
    write: Distribution
    flush: Distribution


class Burst(Profile):
    """Credits of a limit; `credits` null: burst for ever."""

    per_s: UnsignedInt
    credits: UnsignedInt | None
    start: UnsignedInt | None = None


class Limit(Profile):
    """One token bucket, or a pair of them when it bursts."""

    scope: Scope = "all"
    unit: Unit
    per_s: Annotated[UnsignedInt, Field(gt=0)]
    io_unit_bytes: int | None = None
    window_ns: UnsignedInt = 0
    burst: Burst | None = None


class DiskProfile(Profile):
    """One disk."""

    name: str
    medium: Medium
    limits: list[Limit]
    latency: Latency


class VolumeProfile(Profile):
    """One volume: a disk, or a RAID 0 stripe."""

    name: str
    size_bytes: UnsignedInt
    caching: Caching
    chunk_bytes: int | None
    disks: list[DiskProfile] = Field(min_length=1)


class CacheProfile(Profile):
    """The host cache of a VM."""

    capacity_bytes: UnsignedInt
    block_bytes: int
    latency: Latency
    charges_writes: bool = False
    """Whether the disk's limits count what ReadWrite caching acknowledges, and its destage not."""


class HostProfile(Profile):
    """One emulated or simulated VM."""

    version: Literal[1] = 1
    name: str
    seed: UnsignedInt
    cached: list[Limit]
    uncached: list[Limit]
    cache: CacheProfile | None
    volumes: list[VolumeProfile]
