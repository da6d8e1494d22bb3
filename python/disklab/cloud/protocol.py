"""What a cloud must do for a run: tell what fits, make hosts, remove them, find what was left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from disklab import waiting
from disklab.cloud.layout import Layout
from disklab.errors import DisklabError, Problem

RUN, OWNER, UNTIL = "disklab-run", "disklab-owner", "disklab-until"
"""Tags of everything that is made: whose it is, and until when it may be there."""


class CloudError(DisklabError):
    """A cloud refused or did not answer: what was asked, its answer, what to do."""


class Clock(waiting.Clock, Protocol):
    """Time, so that tests need none."""

    def now(self) -> datetime:
        """Return the time, in UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """Let time pass."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Fit:
    """Whether a layout can be made, found out without making anything."""

    layout: Layout
    """As it can be made: without what a VM size does not have there."""
    zones: tuple[str, ...]
    """The region's zones to be used; empty: none is needed or there is none."""
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Wish:
    """What is to be made, under which name and with which secrets."""

    group: str
    tags: Mapping[str, str]
    layout: Layout
    zones: tuple[str, ...]
    ssh_public_key: str
    ssh_from: str
    user_data: Mapping[str, str] = field(repr=False)
    """By host; it holds the host's private key."""


@dataclass(frozen=True)
class Found:
    """A group of ours in a cloud."""

    group: str
    tags: Mapping[str, str]


class CloudSite(Protocol):
    """One cloud, region and account."""

    @property
    def account(self) -> str:
        """Whose it is: a subscription or an account."""

    @property
    def endpoint(self) -> str:
        """Where it is asked."""

    def fit(self, layout: Layout) -> Fit:
        """Look at sizes, zones and quota. Raises CloudError when the cloud does not answer."""

    def make(self, wish: Wish) -> dict[str, str]:
        """Make everything; return the hosts' addresses. What was made before a failure stays."""

    def remove(self, group: str, run: str) -> None:
        """Remove a group that has this run's tag; nothing when there is none."""

    def ours(self, owner: str) -> list[Found]:
        """Return all groups with an owner's tag."""
