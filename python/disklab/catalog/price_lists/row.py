"""One price of a vendor's list, in the catalogue's terms."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from disklab.catalog.facts import PriceTerms


@dataclass(frozen=True)
class Row:
    """One price: of a VM by the hour, of a disk by the month, or of a part of a disk by the month.

    `per_gib` is for each GiB, `per_iops` for each I/O a second, `per_mb_per_s` for each MB/s.
    """

    part: Literal["vm", "disk", "per_gib", "per_iops", "per_mb_per_s"]
    name: str
    """Without its vendor."""
    amount: Decimal
    region: str
    currency: str
    terms: PriceTerms = "pay-as-you-go"
