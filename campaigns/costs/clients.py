"""Measures what a client as YCSB takes of the processor: `python -m campaigns.costs.clients`.

`Client.java` does for an operation what YCSB's binding for Cassandra does, with the driver that it
has (Java, 4.13). A line a cell goes to `clients.jsonl`, and to the screen. CPU times are those of
the client's process, which shares the machine with the server.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from disklab.databases.cassandra.distribution import find_java

from campaigns.pauses.__main__ import Setup, started

MEASURED = Path(__file__).parent / "clients.jsonl"
SOURCE = Path(__file__).parent / "Client.java"
DRIVER = "4.13.0"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
POM = f"""<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>disklab</groupId><artifactId>client</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.datastax.oss</groupId>
      <artifactId>java-driver-core</artifactId>
      <version>{DRIVER}</version>
    </dependency>
  </dependencies>
</project>
"""
THREADS = (1, 8, 32, 100)
ROWS = 200_000


def cells(field_bytes: int, seconds: float) -> Iterator[Any]:
    """Yield a line of each kind and number of threads; rows of ten such fields."""
    java = find_java()
    with (
        tempfile.TemporaryDirectory(prefix="disklab-client-") as name,
        started(Setup(2048)) as node,
    ):
        folder = Path(name)
        (folder / "pom.xml").write_text(POM, encoding="utf-8")
        fetch = ["mvn", "-B", "-C", "-q", "-f", str(folder / "pom.xml"), PLUGIN]
        subprocess.run([*fetch, f"-DoutputDirectory={folder / 'lib'}"], check=True)
        path = f"{folder}:{folder / 'lib'}/*"
        compiler = str(java.program.with_name("javac"))
        subprocess.run([compiler, "-cp", path, "-d", str(folder), str(SOURCE)], check=True)
        target = node.target
        host, port = str(target["contact_points"][0]).rsplit(":", 1)  # type: ignore[index]
        for kind in ("insert", "read"):
            for threads in THREADS:
                words = [host, port, target["user"], target["password"], kind, threads]
                words += [seconds, ROWS, field_bytes, "datacenter1"]
                command = [str(java.program), "-Xmx1g", "-cp", path, "Client", *map(str, words)]
                ended = subprocess.run(command, check=True, capture_output=True, text=True)
                figures = json.loads(ended.stdout.splitlines()[-1])
                yield {
                    "client": f"java-driver {DRIVER}",
                    "row_bytes": 10 * field_bytes,
                    "cell": kind,
                    "threads": threads,
                    **figures,
                    "cpu_us": round(figures["cpu_s"] / figures["operations"] * 1e6, 1),
                    "load_average": [round(load, 1) for load in os.getloadavg()],
                    "started": datetime.now(timezone.utc).date().isoformat(),
                }


def main() -> None:
    """Measure rows of the fields' bytes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--field-bytes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=12.0, help="a cell's time")
    options = parser.parse_args()
    for line in cells(options.field_bytes, options.seconds):
        text = json.dumps(line)
        print(text, flush=True)
        with MEASURED.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
