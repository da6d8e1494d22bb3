"""A store of keys as RocksDB has it: a log that is synced, tables that are written and renamed."""

import os
from pathlib import Path

BATCHES, BATCH, TABLE = 40, 25, 250


def written(path: Path, content: bytes) -> None:
    """Write a file whole, and make sure that it and its name are on the disk."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


memory: dict[bytes, bytes] = {}
with Path("store.log").open("ab") as log:
    for batch in range(BATCHES):
        for number in range(BATCH):
            key = f"{(batch * BATCH + number) * 7919 % 10007:08}".encode()
            memory[key] = os.urandom(500)
            log.write(key + memory[key])
        log.flush()
        os.fdatasync(log.fileno())
        if len(memory) >= TABLE:
            written(Path(f"{batch:06}.table"), b"".join(k + v for k, v in sorted(memory.items())))
            memory.clear()
            log.truncate(0)
