"""Page cache of a folder whose owner may put anything there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from disklab.machines.local import cached_bytes, drop


def test_pipes_links_and_sockets_are_passed_over(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 10_000)
    folder = tmp_path / "data"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_bytes(b"x" * 5_000)
    (folder / "link").symlink_to(outside)
    (folder / "a/folder").symlink_to(tmp_path)
    os.mkfifo(folder / "a/pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "s"))
        drop(folder)
        assert cached_bytes(folder)[0] == 5_000
    assert cached_bytes(tmp_path / "absent") == (0, 0)
    names = ["link", "a/folder", "a/pipe", "s", "absent", "a/b/file"]
    assert sum(cached_bytes(folder / name)[0] for name in names) == 5_000
