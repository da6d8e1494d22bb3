"""The read-ahead of a volume's disk: as a trial asks, written down, and put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.measurement import settings
from disklab.measurement.journal import Journal, undo_all

from tests.foreign import loop_device, run

pytestmark = pytest.mark.machine


def test_it_is_changed_from_trial_to_trial_and_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    image, mounted, record = (tmp_path / name for name in ("disk.img", "mounted", "run"))
    with image.open("wb") as made:
        made.truncate(32 << 20)
    mounted.mkdir()
    record.mkdir()
    machine, journal = LocalMachine("here"), Journal(record)
    with loop_device(image) as device:
        run("mkfs.ext4", "-qF", str(device))
        run("mount", str(device), str(mounted))
        try:
            file = Path(f"/sys/block/{device.name}/queue/read_ahead_kb")
            before = file.read_text()

            def ask(bytes_: int | None) -> None:
                settings.ask_read_ahead("here", machine, str(mounted), bytes_, journal)

            ask(None)
            assert not journal.left()
            ask(64 << 10)
            assert file.read_text() == "64\n"
            ask(8 << 10)
            assert file.read_text() == "8\n"
            # Whoever finds the journal after a kill puts back what was there before the run.
            again = Journal.of(record)
            assert [one.before for one in again.left()] == [before.strip()]
            ask(None)
            assert file.read_text() == before
            ask(64 << 10)
            assert undo_all(journal, {"here": machine}) == []
            assert file.read_text() == before
        finally:
            run("umount", str(mounted))


@pytest.mark.parametrize("number", ["9" * 5000, "\u00b2", "99999999999999999999", "", "-1"])
def test_a_device_without_a_number_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(f"#!/bin/sh\necho {number}\n")
    stat.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(MachineError, match=r"^here: /: "):
        settings.queue_of(LocalMachine("here"), "/")
