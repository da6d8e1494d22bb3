"""Says whether a program for macOS is signed as arm64 Macs ask for: they kill one that is not.

The signature that a linker makes without a certificate is a list of hashes, one for each page of
the file (kSecCodeSignatureAdhoc). `strip` after linking would leave it wrong.

Sources: <mach-o/loader.h> (64-bit header, load commands) and <kern/cs_blobs.h> (SuperBlob,
CodeDirectory) of Apple's open xnu.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path

HEADER_BYTES = 32
LC_CODE_SIGNATURE = 0x1D
CODE_DIRECTORY = 0xFADE0C02
SHA256 = 2


def wrong_pages(program: bytes) -> int | None:
    """Return how many pages differ from the signature; None if the file is not signed."""
    directory = _code_directory(program)
    if directory is None:
        return None
    hashes, _, _, slots, limit = struct.unpack_from(">5I", program, directory + 16)
    size, kind, _, page_log2 = program[directory + 36 : directory + 40]
    if kind != SHA256:
        return None
    page, wrong = 1 << page_log2, 0
    for number in range(slots):
        at = directory + hashes + number * size
        covered = program[number * page : min((number + 1) * page, limit)]
        wrong += hashlib.sha256(covered).digest()[:size] != program[at : at + size]
    return wrong


def _code_directory(program: bytes) -> int | None:
    """Return where the code directory begins."""
    (commands,) = struct.unpack_from("<I", program, 16)
    at = HEADER_BYTES
    for _ in range(commands):
        kind, length, signature = struct.unpack_from("<3I", program, at)
        if kind == LC_CODE_SIGNATURE:
            break
        at += length
    else:
        return None
    (blobs,) = struct.unpack_from(">I", program, signature + 8)
    for number in range(blobs):
        _, offset = struct.unpack_from(">2I", program, signature + 12 + 8 * number)
        (magic,) = struct.unpack_from(">I", program, signature + offset)
        if magic == CODE_DIRECTORY:
            return int(signature + offset)
    return None


if __name__ == "__main__":
    wrong = wrong_pages(Path(sys.argv[1]).read_bytes())
    if wrong is None:
        sys.exit(f"{sys.argv[1]}: not signed")
    if wrong:
        sys.exit(f"{sys.argv[1]}: {wrong} pages are not those that were signed")
