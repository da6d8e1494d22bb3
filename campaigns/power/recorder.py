"""A disk that records: a file behind FUSE, in a process of its own, which logs what it is told.

`python -m campaigns.power.recorder IMAGE FOLDER LOG` mounts FOLDER with two files: `disk` has
IMAGE's data, and each write, discard and flush of it goes to LOG in the order of its reply.
What is written to `marks` goes to LOG as it is, so that a writer can say what it was promised,
and when.

A loop device on `disk` passes FLUSH on as FSYNC and has no FUA: the kernel makes a FLUSH of that.
Requests are answered one at a time, so a FLUSH covers every write that has a record before it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

WRITE, ZERO, FLUSH, MARK = b"W", b"Z", b"F", b"M"
RECORD = struct.Struct("<cQI")
"""Kind, offset in bytes, length in bytes; a WRITE's or MARK's data follow."""

# From here on: linux/fuse.h, protocol 7.31.
IN = struct.Struct("<IIQQIIII")
OUT = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
ENTRY = struct.Struct("<QQQQII")
INIT_OUT = struct.Struct("<IIIIHHII36x")
WRITE_IN = struct.Struct("<QQIIQII")
(LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE_OP, STATFS, RELEASE, FSYNC) = (
    *(1, 2, 3, 4, 14, 15, 16, 17, 18, 20),
)
INIT, INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE = 26, 36, 38, 42, 43
SILENT = {FORGET, INTERRUPT, BATCH_FORGET}
BIG_WRITES = 1 << 5
DIRECT_IO = 1
MOST_WRITTEN = 1 << 17
ROOT, DISK, MARKS = 1, 2, 3
NAMES = {b"disk": DISK, b"marks": MARKS}
FOREVER = 1 << 30
"""Seconds for which the kernel may remember names and sizes; they do not change."""


class Record(NamedTuple):
    """One thing that the disk was told."""

    kind: bytes
    offset: int
    length: int
    data: bytes


def records_of(log: Path) -> Iterator[Record]:
    """Yield a log's records. A last one that is not whole, of a killed recorder, is left out."""
    with log.open("rb") as file:
        while len(head := file.read(RECORD.size)) == RECORD.size:
            kind, offset, length = RECORD.unpack(head)
            data = file.read(length) if kind in (WRITE, MARK) else b""
            if kind in (WRITE, MARK) and len(data) < length:
                return
            yield Record(kind, offset, length, data)


class Recorder:
    """Answers the kernel's requests for the two files."""

    def __init__(self, image: Path, log: Path) -> None:
        self.image = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.image).st_size
        self.log: BinaryIO = log.open("wb")

    def record(self, kind: bytes, offset: int, length: int, data: bytes = b"") -> None:
        """Add to the log, and let it reach the file before the reply."""
        self.log.write(RECORD.pack(kind, offset, length) + data)
        self.log.flush()

    def serve(self, device: int) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                request = os.read(device, MOST_WRITTEN + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, code, unique, node, *_ = IN.unpack_from(request)
            if code in SILENT:
                continue
            try:
                failed, body = 0, self.answer(code, node, request[IN.size :])
            except OSError as error:
                failed, body = -(error.errno or errno.EIO), b""
            os.write(device, OUT.pack(OUT.size + len(body), failed, unique) + body)

    def answer(self, code: int, node: int, body: bytes) -> bytes:
        """Do what a request says and return the answer's body. OSError: the answer is an error."""
        if code in (WRITE_OP, FALLOCATE, FSYNC):
            return self.change(code, node, body)
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(self.image, size, offset) if node == DISK else b""
        if code == LOOKUP:
            found = NAMES.get(body.rstrip(b"\0"))
            if found is None:
                raise OSError(errno.ENOENT, "no such file")
            return ENTRY.pack(found, 0, FOREVER, FOREVER, 0, 0) + self.attributes(found)
        told = {
            INIT: INIT_OUT.pack(7, 31, 0, BIG_WRITES, 16, 12, MOST_WRITTEN, 1),
            GETATTR: struct.pack("<QII", FOREVER, 0, 0) + self.attributes(node),
            SETATTR: struct.pack("<QII", FOREVER, 0, 0) + self.attributes(node),
            OPEN: struct.pack("<QII", 0, DIRECT_IO if node == MARKS else 0, 0),
            STATFS: struct.pack("<QQQQQIIII24x", 0, 0, 0, 2, 0, 4096, 255, 4096, 0),
            RELEASE: b"",
            DESTROY: b"",
        }
        if code not in told:
            raise OSError(errno.ENOSYS, "not served")
        return told[code]

    def change(self, code: int, node: int, body: bytes) -> bytes:
        """Write, discard or flush; record it."""
        if code == WRITE_OP:
            _, offset, size, *_ = WRITE_IN.unpack_from(body)
            data = body[WRITE_IN.size : WRITE_IN.size + size]
            if node == DISK:
                os.pwrite(self.image, data, offset)
            self.record(WRITE if node == DISK else MARK, offset, size, data)
            return struct.pack("<II", size, 0)
        if code == FALLOCATE:
            _, offset, size, _, _ = struct.unpack_from("<QQQII", body)
            left = size
            while left:
                part = min(left, MOST_WRITTEN)
                os.pwrite(self.image, bytes(part), offset + size - left)
                left -= part
            self.record(ZERO, offset, size)
            return b""
        self.record(FLUSH, 0, 0)
        return b""

    def attributes(self, node: int) -> bytes:
        kind = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o600
        size = self.size if node == DISK else 0
        return ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, kind, 1, 0, 0, 0, 4096, 0)


def main() -> None:
    image, folder, log = (Path(one) for one in sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    device = os.open("/dev/fuse", os.O_RDWR)
    library = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={MOST_WRITTEN}"
    kind = b"fuse.disklab-power"
    if library.mount(b"recorder", bytes(folder), kind, 6, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount {folder}")
    print("ready", flush=True)
    Recorder(image, log).serve(device)


if __name__ == "__main__":
    main()
