"""A stripe of disks that may be formatted, and its read-ahead: asked, guarded, undone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from disklab.errors import MachineError, UserError
from disklab.machines.local import LocalMachine
from disklab.measurement import hosts_file, settings
from disklab.measurement.formatting import format_and_mount, why_not
from disklab.measurement.hosts_file import Volume
from disklab.measurement.journal import Journal, undo_all
from disklab.measurement.planned_database import disks_in_words

from tests.foreign import loop_device, run

from .test_format import SIZE, Bed, prepared

pytestmark = pytest.mark.machine

MDADM = """#!{python}
import json, os, pathlib, sys
file = str(pathlib.Path(__file__).parents[1] / "md.json")
words = sys.argv[1:]
state = {{"asked": [], "array": None, "on": {{}}}}
if os.path.exists(file):
    state = json.load(open(file))
state["asked"].append(words)
option = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
code = 0
if words[0] == "--create":
    members = [word for word in words[2:] if not word.startswith("--")]
    assert len(members) == int(option["--raid-devices"])
    for member in members:
        os.close(os.open(member, os.O_RDWR | os.O_EXCL))
    if (pathlib.Path(__file__).parents[1] / "fails").exists():
        members = members[:1]
        code = 1
    else:
        state["array"] = {{"name": "/dev/md127", "uuid": option["--uuid"], "count": len(members)}}
    state["on"].update(dict.fromkeys(members, option["--uuid"]))
elif words[:2] == ["--detail", "--export"]:
    array = state["array"]
    print(f"MD_LEVEL=raid0\\nMD_DEVICES={{array['count']}}\\nMD_UUID={{array['uuid']}}")
elif words[:2] == ["--detail", "--scan"]:
    print("ARRAY /dev/md/theirs metadata=1.2 UUID=11111111:22222222:33333333:44444444")
    if state["array"]:
        print(f"ARRAY {{state['array']['name']}} metadata=1.2 UUID={{state['array']['uuid']}}")
elif words[0] == "--stop":
    assert words[1] == state["array"]["name"]
    state["array"] = None
elif words[:2] == ["--examine", "--export"]:
    found = state["on"].get(words[2])
    print(f"MD_UUID={{found}}") if found else sys.exit(1)
elif words[0] == "--zero-superblock":
    assert state["array"] is None
    del state["on"][words[1]]
json.dump(state, open(file, "w"))
sys.exit(code)
"""


class Lab:
    """Two disks that may be formatted, and stand-ins for what md needs."""

    def __init__(self, folder: Path, beds: list[Bed]) -> None:
        self.folder, self.beds = folder, beds
        self.machine = LocalMachine("n1")
        self.journal = Journal(folder / "run")
        self.journal.folder.mkdir()

    def volume(self, *names: str, size: int = SIZE) -> Volume:
        disks = [{"by_id": name, "size": f"{size}B", "kind": "loop"} for name in names]
        stripe = {"chunk": "256KiB", "disks": disks}
        host = {"address": "n1", "volumes": {"data": {"format": True, "stripe": stripe}}}
        return (
            hosts_file.parse(json.dumps({"hosts": {"n1": host}}), "h")
            .file.hosts["n1"]
            .volumes["data"]
        )

    @property
    def both(self) -> Volume:
        return self.volume(*(bed.name for bed in self.beds))

    @property
    def state(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / "md.json").read_text())
        return found

    @property
    def asked(self) -> list[str]:
        words = self.state["asked"]
        assert isinstance(words, list)
        return [" ".join(one) for one in words]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mkfs.xfs", "mount"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/others\n')
    (programs / "mdadm").write_text(MDADM.format(python=sys.executable))
    for file in programs.iterdir():
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as undo:
        yield Lab(tmp_path, [undo.enter_context(prepared(tmp_path, one)) for one in ("a", "b")])


def test_it_is_made_of_disks_that_were_looked_at_and_taken_apart(lab: Lab) -> None:
    assert [*disks_in_words(lab.both)][-1].startswith("these 2 as one stripe of chunks of 256 KiB")
    assert why_not(lab.machine, lab.both, "h:1") is None
    assert not (lab.folder / "md.json").exists(), "a plan asks mdadm for nothing"
    directory, _ = format_and_mount(lab.machine, lab.both, "xfs", lab.journal, "h:1")
    members = [f"/dev/disk/by-id/{bed.name}" for bed in lab.beds]
    (stripe,) = [one for one in lab.journal.left() if one.kind == "stop_stripe"]
    assert lab.asked[0] == (
        f"--create {stripe.path} --uuid={stripe.before} --homehost=any --metadata=1.2 --level=0 "
        f"--chunk=256 --raid-devices=2 {' '.join(members)}"
    )
    assert stripe.before.startswith("d15c1ab0:")
    others = (lab.folder / "others").read_text().splitlines()
    assert others[0] == f"mkfs.xfs -q -K {stripe.path}", "it is not forced"
    assert others[1] == f"mount -t xfs -o noatime {stripe.path} {directory}"
    # What a killed run has left is undone from its journal; the array has another name by now.
    assert undo_all(Journal.of(lab.journal.folder), {"n1": lab.machine}) == []
    assert lab.asked[-6:] == [
        "--detail --scan",
        "--stop /dev/md127",
        f"--examine --export {members[0]}",
        f"--zero-superblock {members[0]}",
        f"--examine --export {members[1]}",
        f"--zero-superblock {members[1]}",
    ]
    assert lab.state["on"] == {}
    assert not Path(directory).exists()


def test_a_member_that_is_in_use_or_another_disk_stops_it_before_mdadm(lab: Lab) -> None:
    a, b = lab.beds
    with b.device.open("r+b", buffering=0) as device:
        device.write(b"somebody's data" + bytes(497))
    before = [bed.content for bed in lab.beds]
    wrong = lab.volume(a.name, b.name, size=SIZE + 4096)
    for volume, told in (
        (lab.both, "not empty|holds|zero"),
        (lab.volume(a.name, a.name), "the same disk"),
        (wrong, str(SIZE + 4096)),
    ):
        assert why_not(lab.machine, volume, "h:1") is not None
        with pytest.raises(UserError, match=told):
            format_and_mount(lab.machine, volume, "xfs", lab.journal, "h:1")
    assert lab.journal.left() == []
    assert not (lab.folder / "md.json").exists()
    assert [bed.content for bed in lab.beds] == before


def test_what_a_failing_mdadm_has_begun_is_taken_apart(lab: Lab) -> None:
    (lab.folder / "fails").touch()
    with pytest.raises(MachineError, match="mdadm --create"):
        format_and_mount(lab.machine, lab.both, "xfs", lab.journal, "h:1")
    assert len(lab.state["on"]) == 1  # type: ignore[arg-type]
    assert undo_all(lab.journal, {"n1": lab.machine}) == []
    assert lab.state["on"] == {}
    assert not (lab.folder / "others").exists()


def test_superblocks_of_others_stay(lab: Lab) -> None:
    format_and_mount(lab.machine, lab.both, "xfs", lab.journal, "h:1")
    state = lab.state
    theirs = f"/dev/disk/by-id/{lab.beds[1].name}"
    state["on"] = {**state["on"], theirs: "5:6:7:8"}  # type: ignore[dict-item]
    (lab.folder / "md.json").write_text(json.dumps(state))
    (told,) = undo_all(lab.journal, {"n1": lab.machine})
    assert f"{theirs} belongs to the array 5:6:7:8 now, and stays" in told
    assert lab.state["on"] == {theirs: "5:6:7:8"}


@pytest.mark.parametrize(
    ("stripe", "told"),
    [
        ("{disks: [{lun: 0, size: 1TiB, kind: scsi}]}", "at least 2"),
        (
            "{chunk: 100KiB, disks: [{lun: 0, size: 1TiB, kind: scsi}, "
            "{lun: 1, size: 1TiB, kind: scsi}]}",
            "a chunk is a power of two",
        ),
    ],
)
def test_a_stripe_that_cannot_be_is_refused_with_its_line(stripe: str, told: str) -> None:
    text = f"hosts: {{n1: {{address: n1, volumes: {{data: {{format: true, stripe: {stripe}}}}}}}}}"
    with pytest.raises(UserError, match=told):
        hosts_file.parse(text, "h")


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
            # After a kill the journal has the value from before the run, to be put back.
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
