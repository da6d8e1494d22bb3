"""Runs Kafka's VerifiableProducer, and counts what it says was acknowledged.

load.py LEDGER COMMAND...
"""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main() -> int:
    begin = second = time.monotonic()
    done = before = failed = 0
    last = begin
    process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    for line in process.stdout:
        now = time.monotonic()
        if b'"producer_send_success"' in line:
            if not done:
                begin = second = now
            done, last = done + 1, now
        elif b'"producer_send_error"' in line:
            failed += 1
        elif not line.startswith(b"{"):
            sys.stdout.buffer.write(line)
        if now >= second + 1:
            print(f"second {done - before}", flush=True)
            second, before = second + 1, done
    seconds = max(last - begin, 0.001)
    print(json.dumps({"count": done, "failed": failed, "seconds": seconds}))
    return process.wait() if done else 1


if __name__ == "__main__":
    sys.exit(main())
