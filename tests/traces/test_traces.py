"""Readers of block traces: the same I/Os from each format, and a place for all that is wrong."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from disklab import traces
from disklab.errors import UserError
from disklab.traces import Chosen, Trace
from hypothesis import given, settings
from hypothesis import strategies as st

Io = tuple[int, int, int, bool]
"""Nanoseconds from the first, offset, length, whether it writes."""

SECTOR = 512
IOS: list[Io] = [
    (0, 0, 4096, False),
    (1_500_000, 1 << 30, 8192, True),
    (1_500_000, 512, 1024, False),
    (20_000_000, 4096, 65536, True),
]


def blkparse_text(ios: list[Io]) -> str:
    lines = []
    for number, (at, offset, length, writes) in enumerate(ios, 1):
        head = f"  8,16   {number % 4}  {number:8} {at // 10**9:5}.{at % 10**9:09} 4711"
        where = f"{offset // SECTOR} + {length // SECTOR}"
        flags = "WS" if writes else "RA"
        lines.append(f"{head}  Q {flags:>3} {where} [postgres]")
        lines.append(f"{head}  G {flags:>3} {where} [postgres]")
        lines.append(f"{head}  P   N [postgres]")
        lines.append(f"{head}  D {flags:>3} {where} [kworker/0:1H]")
        lines.append(f"{head}  C {flags:>3} {where} [0]")
    lines += ["CPU0 (8,16):", " Reads Queued:           2,       68KiB"]
    return "\n".join(lines) + "\n"


def fio_text(ios: list[Io]) -> str:
    lines = ["fio version 3 iolog", "0 /dev/sdb add", "3 /dev/sdb open"]
    lines += [
        f"{7 + at // 1000} /dev/sdb {'write' if writes else 'read'} {offset} {length}"
        for at, offset, length, writes in ios
    ]
    return "\n".join([*lines, f"{10**9} /dev/sdb close"]) + "\n"


def msr_text(ios: list[Io]) -> str:
    return "".join(
        f"{128166372003061629 + at // 100},usr,1,{'Write' if writes else 'Read'},"
        f"{offset},{length},41286\r\n"
        for at, offset, length, writes in ios
    )


TEXTS = {"blkparse": blkparse_text, "fio": fio_text, "msr": msr_text}


def read(folder: Path, text: str | bytes, chosen: Chosen | None = None) -> Trace:
    file = folder / "t"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return traces.read(file, chosen or Chosen(), "e.yaml:3: workload.trace", "t")


def refusal(folder: Path, text: str | bytes, chosen: Chosen | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read(folder, text, chosen)
    return str(caught.value)


@pytest.mark.parametrize("form", TEXTS)
def test_each_format_gives_the_same_ios(form: str, tmp_path: Path) -> None:
    found = read(tmp_path, TEXTS[form](IOS))
    assert list(found.ios()) == IOS
    assert found.form == form
    assert found.device == {"blkparse": "8,16", "fio": "/dev/sdb", "msr": "usr.1"}[form]
    assert found.left_out == {}


REGION = 1 << 41


@st.composite
def recorded(draw: st.DrawFn) -> list[Io]:
    """I/Os that each of the formats can tell: whole sectors at whole microseconds."""
    count = draw(st.integers(1, 30))
    times = sorted(draw(st.lists(st.integers(0, 10**7), min_size=count, max_size=count)))
    return [
        (
            (at - times[0]) * 1000,
            draw(st.integers(0, REGION // SECTOR)) * SECTOR,
            draw(st.integers(1, 2048)) * SECTOR,
            draw(st.booleans()),
        )
        for at in times
    ]


@given(recorded(), st.sampled_from(sorted(TEXTS)))
def test_what_is_written_in_a_format_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, ios: list[Io], form: str
) -> None:
    found = read(tmp_path_factory.getbasetemp(), TEXTS[form](ios))
    assert list(found.ios()) == ios


@given(recorded(), st.sampled_from(sorted(TEXTS)), st.data())
@settings(max_examples=200)
def test_a_damaged_file_is_read_or_refused_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, ios: list[Io], form: str, data: st.DataObject
) -> None:
    text = bytearray(TEXTS[form](ios).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    try:
        found = read(tmp_path_factory.getbasetemp(), bytes(text))
    except UserError as error:
        for problem in error.problems:
            assert problem.place.startswith(("t", "e.yaml:3"))
            assert problem.rule
            assert problem.way_out
    else:
        assert len(found) >= 1
        assert list(found.at_ns) == sorted(found.at_ns)
        assert found.at_ns[0] == 0
        assert min(found.length_bytes) > 0


@given(recorded(), st.integers(2048 * SECTOR + 2 * 4096, 1 << 43), st.floats(0.01, 100))
def test_a_placed_trace_lies_within_the_volume_in_whole_sectors(
    ios: list[Io], size: int, speed: float
) -> None:
    trace = Trace("msr", "usr.1")
    for at, offset, length, writes in ios:
        trace.at_ns.append(at)
        trace.offset_bytes.append(offset)
        trace.length_bytes.append(length)
        trace.is_write.append(writes)
    laid = traces.placed(trace, size, speed)
    wrapped = 0
    for (at, offset, length, writes), was in zip(laid.trace.ios(), ios, strict=True):
        assert offset % 4096 == length % 4096 == 0
        assert offset >= 0
        assert offset + length <= size
        assert was[2] <= length < was[2] + 2 * 4096
        assert writes == was[3]
        assert at == round(was[0] / speed)
        inside = -(-(was[1] + was[2]) // 4096) * 4096 <= size // 4096 * 4096
        assert (offset <= was[1] and was[1] + was[2] <= offset + length) or not inside
        wrapped += not inside
    assert laid.wrapped == wrapped


def test_what_is_no_read_and_no_write_is_counted_and_left_out(tmp_path: Path) -> None:
    text = (
        "  8,0 1 1 0.000000000 1 Q FWS [jbd2]\n"
        "  8,0 1 2 0.000000001 1 Q  DS 8 + 8 [fstrim]\n"
        "  8,0 1 3 0.000000002 1 Q  WS 8 + 8 [jbd2]\n"
        "  8,0 1 4 0.000000003 1 m   N cfq1 slice\n"
    )
    found = read(tmp_path, text)
    assert list(found.ios()) == [(0, 4096, 4096, True)]
    assert found.left_out == {"flushes": 1, "discards": 1}
    text = "fio version 3 iolog\n5 f trim 0 4096\n6 f sync 0 0\n7 f write 0 0\n9 f read 0 4096\n"
    found = read(tmp_path, text)
    assert len(found) == 1
    assert found.left_out == {"flushes": 1, "discards": 1, "I/Os without bytes": 1}


def test_a_fio_iolog_without_times_will_do_at_a_depth(tmp_path: Path) -> None:
    text = (
        "fio version 2 iolog\nf add\nf open\nf write 4096 8192\nf wait 1000\nf read 0 4096\n"
        "f datasync 0 0\nf close\n"
    )
    found = read(tmp_path, text, Chosen(untimed=True))
    assert list(found.ios()) == [(0, 4096, 8192, True), (0, 0, 4096, False)]
    assert found.left_out == {"flushes": 1}
    assert "replay it at a depth (depth: 32)" in refusal(tmp_path, text)


def test_a_trace_of_issued_ios_alone_is_read_as_well(tmp_path: Path) -> None:
    lines = [line for line in blkparse_text(IOS).splitlines() if "  D " in line]
    assert list(read(tmp_path, "\n".join(lines)).ios()) == IOS


def test_lines_out_of_order_are_sorted_by_time(tmp_path: Path) -> None:
    lines = msr_text(IOS).splitlines(keepends=True)
    found = read(tmp_path, "".join([lines[3], *lines[:3]]))
    assert list(found.ios()) == IOS


def test_of_several_devices_one_is_named(tmp_path: Path) -> None:
    text = msr_text(IOS) + msr_text(IOS[:1]).replace("usr,1", "usr,2")
    told = refusal(tmp_path, text)
    assert "usr.1 (4 lines), usr.2 (1 lines)" in told
    assert "workload.trace.device" in told
    assert len(read(tmp_path, text, Chosen(device="usr.2"))) == 1
    assert "choose one of usr.1" in refusal(tmp_path, text, Chosen(device="usr.7"))


def test_a_part_is_the_first_ios_or_the_first_time(tmp_path: Path) -> None:
    assert list(read(tmp_path, msr_text(IOS), Chosen(most_ios=2)).ios()) == IOS[:2]
    assert list(read(tmp_path, msr_text(IOS), Chosen(most_ns=2_000_000)).ios()) == IOS[:3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no read and no write"),
        ("hello\n", "t:1: this line: is the first line of no trace that disklab reads"),
        ("fio version 2 iolog\n", "t:1: this line: only version 3 has the time"),
        ("fio version 3 iolog\n5 f read 0\n", "t:2: this line: is not a line of a fio iolog"),
        ("fio version 3 iolog\n5 f erase 0 1\n", "its action is none that has an offset"),
        ("fio version 3 iolog\n-5 f read 0 1\n", "its time is not a whole number"),
        (f"fio version 3 iolog\n5 f read {1 << 61} 1\n", "begins beyond 2^60 bytes"),
        (f"fio version 3 iolog\n5 f read 0 {1 << 31}\n", "is longer than 1 GiB"),
        (
            "1,h,0,Read,0,4096,1\n2,h,0,Erase,0,4096,1\n",
            "t:2: this line: its type is neither",
        ),
        ("1,h,0,Read,0,4096,1\n2,h,0,Read,0\n", "t:2: this line: has 5 fields"),
        ("1,h,0,Read,0,4096,1\n" + "9" * 5000, "t:2: this line: a line has at most 4096 bytes"),
        (blkparse_text(IOS[:1])[:40] + "\n", "t:1: "),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    assert told in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            gzip.compress(b"1,h,0,Read,0,4096,1\n", mtime=0),
            "it is packed by gzip: unpack it by gunzip",
        ),
        (struct.pack("<IIQ", 0x65617407, 1, 5) + b"\n", "make text of it by blkparse -i"),
        (struct.pack(">IIQ", 0x65617407, 1, 5) + b"\n", "make text of it by blkparse -i"),
    ],
)
def test_a_trace_in_another_form_is_told_how_to_be_read(
    tmp_path: Path, content: bytes, told: str
) -> None:
    assert told in refusal(tmp_path, content)


SHADOW = "root:$y$j9T$salt$hash:19000:0:99999:7:::"


@pytest.mark.parametrize("form", [None, *TEXTS])
@pytest.mark.parametrize(
    "text", [SHADOW, f"{SHADOW}\n{SHADOW}", SHADOW.replace(":", " "), SHADOW.replace(":", ",")]
)
def test_a_file_that_is_no_trace_is_never_quoted(
    tmp_path: Path, text: str, form: str | None
) -> None:
    told = refusal(tmp_path, text, Chosen(form=form))
    assert told.startswith("t:1: this line: ")
    for part in ("root", "$y$", "hash", "19000", "99999"):
        assert part not in told


def test_more_ios_than_a_replay_takes_are_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disklab.traces.formats.MOST_IOS", 3)
    assert "workload.stop: {operations: 1M}" in refusal(tmp_path, msr_text(IOS))
    assert len(read(tmp_path, msr_text(IOS), Chosen(most_ios=3))) == 3


def test_the_mixture_tells_directions_sizes_and_order(tmp_path: Path) -> None:
    stream = [(n * 10**6, n * 4096, 4096, False) for n in range(8)]
    other = [(n * 10**6 + 1000, (1 << 30) + n * 8192, 8192, True) for n in range(8)]
    told = traces.mixture(read(tmp_path, fio_text(sorted(stream + other))))
    assert (told.ios, told.reads, told.writes) == (16, 8, 8)
    assert (told.read_bytes, told.written_bytes) == (8 * 4096, 8 * 8192)
    assert told.block_sizes == {4096: 0.5, 8192: 0.5}
    assert told.sequential_ratio == 14 / 16
    assert told.duration_s == pytest.approx(0.007001)
    assert told.offered_per_s == pytest.approx(15 / 0.007001)
    assert told.busiest_per_s == 16
