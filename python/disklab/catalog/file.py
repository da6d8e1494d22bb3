"""The form of a catalogue file."""

from __future__ import annotations

from pydantic import Field

from disklab.catalog.evidence import Measurement, ProfileFacts
from disklab.catalog.facts import (
    Facts,
    FamilyFacts,
    LatencyFacts,
    NetworkFacts,
    PriceList,
    SeriesFacts,
    Source,
)
from disklab.catalog.processor import Benchmark


class CatalogueFile(Facts):
    """One catalogue file."""

    sources: dict[str, Source] = Field(default={})
    families: dict[str, FamilyFacts] = Field(default={})
    latencies: dict[str, LatencyFacts] = Field(default={})
    evidence: dict[str, list[Measurement]] = Field(default={})
    """Published measurements by kind of disk; a user's file adds to the package's."""
    profiles: dict[str, ProfileFacts] = Field(default={})
    """Latency profiles that follow from `evidence`."""
    vm_series: dict[str, SeriesFacts] = Field(default={})
    prices: list[PriceList] = Field(default=[])
    networks: dict[str, NetworkFacts] = Field(default={})
    processors: dict[str, list[Benchmark]] = Field(default={})
    """Benchmarks of processors by VM series; a user's file adds to the package's."""
