"""Which addresses of this machine a rehearsal takes."""

from __future__ import annotations

import os
import socket

import pytest
from disklab.hosts.addresses import free_addresses

PORT = 5432


def test_processes_that_start_together_search_different_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = set()
    for number in range(1000, 1000 + 16_384):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        (address,) = free_addresses(1, ())
        found.add(address)
    assert len(found) == 16_384


def test_an_address_whose_port_is_taken_is_left_out() -> None:
    (first,) = free_addresses(1, (PORT,))
    with socket.create_server((first, PORT)):
        second = free_addresses(2, (PORT,))
    assert first not in second
    assert len(set(second)) == 2
