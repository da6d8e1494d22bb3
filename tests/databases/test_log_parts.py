"""What a node that joins or leaves says in its log, as the parts of a step."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from disklab.databases.cassandra.compactions import parts, parts_in

SERVICE = "StorageService.java:2047"
# Of our own rehearsal of 2026-11-25, Cassandra 5.0.6: a node that migrated.
NEW = f"""\
INFO  [main] 2026-11-25 14:41:41,421 YamlConfigurationLoader.java:103 - Configuration location: x
INFO  [main] 2026-11-25 14:43:16,364 {SERVICE} - JOINING: waiting for ring information
INFO  [main] 2026-11-25 14:43:25,835 {SERVICE} - JOINING: schema complete, ready to bootstrap
INFO  [main] 2026-11-25 14:43:31,818 {SERVICE} - JOINING: Starting to bootstrap...
WARN  [main] 2026-11-25 14:43:32,000 Some.java:1 - JOINING: something else
not a line of the log
INFO  [main] 2026-11-25 14:44:19,324 StorageService.java:2216 - Bootstrap completed for tokens [1]
INFO  [main] 2026-11-25 14:44:25,126 CassandraDaemon.java:744 - Startup complete
"""
OLD = f"""\
INFO  [main] 2026-11-25 14:30:00,000 {SERVICE} - JOINING: waiting for ring information
INFO  [jolokia-0] 2026-11-25 14:44:31,104 {SERVICE} - LEAVING: sleeping 8000 ms for batches
INFO  [jolokia-0] 2026-11-25 14:44:39,114 {SERVICE} - LEAVING: replaying batch log and streaming
INFO  [jolokia-0] 2026-11-25 14:44:50,022 {SERVICE} - Announcing that I have left the ring for 5 s
"""


def test_a_migration_is_told_part_by_part() -> None:
    begun, ended = datetime(2026, 11, 25, 14, 41, 36), datetime(2026, 11, 25, 14, 44, 58)
    told = parts([*OLD.splitlines(), *NEW.splitlines()], begun, ended)
    assert told == pytest.approx(
        {
            "process": 100.364,
            "join": 15.454,
            "stream": 47.506,
            "finish": 11.78,
            "announce": 8.01,
            "stream back": 10.908,
            "leave": 7.978,
        }
    )
    assert sum(told.values()) == pytest.approx((ended - begun).total_seconds())


def test_one_that_leaves_alone_has_no_finish_and_one_that_restarts_no_parts(tmp_path: Path) -> None:
    begun, ended = datetime(2026, 11, 25, 14, 44, 31), datetime(2026, 11, 25, 14, 44, 58)
    told = parts(OLD.splitlines(), begun, ended)
    assert list(told) == ["announce", "stream back", "leave"]
    assert parts(NEW.splitlines(), begun, ended) == {}
    log = tmp_path / "system.log"
    log.write_text(OLD)
    found = parts_in([log, tmp_path / "none.log"], begun.timestamp(), ended.timestamp())
    assert found == told
