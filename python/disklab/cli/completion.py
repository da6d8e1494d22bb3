"""Completion of disk, VM and volume names in the shell. Never fails, never prints."""

from __future__ import annotations

from collections.abc import Callable

from disklab.catalog import load_catalog
from disklab.errors import DisklabError
from disklab.hosts.places import Places
from disklab.terminal import plain


def _completion(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        try:
            known = names()
        except (DisklabError, OSError):
            return []
        # The shell takes only what continues the word as it was typed.
        return [name for name in known if name.startswith(incomplete) and plain(name) == name]

    return complete


def _attached() -> list[str]:
    return [name for host in Places.usual().hosts() for name in host.volume_records()]


def _bundled() -> list[str]:
    # The models of the experiment file take a quarter of a second, which most commands do not need.
    from disklab.spec import bundled  # noqa: PLC0415

    return bundled.names()


bundled_names = _completion(_bundled)
disk_names = _completion(lambda: load_catalog().disk_names())
vm_names = _completion(lambda: list(load_catalog().vms))
all_names = _completion(lambda: [*load_catalog().disk_names(), *load_catalog().vms])
volume_names = _completion(_attached)
