"""Cassandra's program files: fetched once by Maven, or an unpacked tarball of Apache's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from disklab import reading
from disklab.catalog.suggest import did_you_mean
from disklab.databases.protocol import Progress, say_nothing
from disklab.errors import MachineError, Problem, UserError
from disklab.hosts.requirements import find_program, how_to_get
from disklab.machines import programs

# The newest of each line that we have started ourselves.
RELEASES = {"5.0": "5.0.6", "4.1": "4.1.10", "4.0": "4.0.18"}
DEFAULT_LINE = "5.0"
# Jolokia answers JMX reads and calls over HTTP inside the database's own process. Without it every
# flush would start a second JVM (nodetool: about 1 s and a core), and some figures (pending
# compactions, dropped messages) are in no virtual table of Cassandra 4 and 5.
JOLOKIA = "2.2.9"
# Pinned, so that every machine resolves the same jars.
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
# 66 MB in 110 files: 21 s on a fast line; a slow one (100 kB/s) needs eleven minutes.
FETCH_SECONDS = 1200.0
MANIFEST = "manifest.json"
_SUMS = TypeAdapter(dict[str, str])
_EXACT = re.compile(r"(4\.[01]|5\.0)\.\d{1,3}", re.ASCII)
_POM = """<?xml version="1.0"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>disklab</groupId><artifactId>cassandra</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>cassandra-all</artifactId>
      <version>{cassandra}</version>
    </dependency>
    <dependency>
      <groupId>org.jolokia</groupId>
      <artifactId>jolokia-agent-jvm</artifactId>
      <version>{jolokia}</version>
      <classifier>javaagent</classifier>
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Distribution:
    """The program files of one version."""

    version: str
    libraries: Path
    """The folder of the jars."""
    jolokia: Path
    """The agent's jar."""
    agent: Path | None = None
    """Where `jamm` is, of program files that are on another machine."""

    @property
    def line(self) -> str:
        """`5.0`, `4.1` or `4.0`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def classes(self) -> Path:
        """The jar with Cassandra's own classes: Maven and the tarball name it differently."""
        tarball = self.libraries / f"apache-cassandra-{self.version}.jar"
        return tarball if tarball.exists() else self.libraries / f"cassandra-all-{self.version}.jar"

    @property
    def jamm(self) -> Path:
        """The agent that Cassandra measures its objects with, and does not start without."""
        return self.agent or next(iter(sorted(self.libraries.glob("jamm-*.jar"))))


def cache_folder() -> Path:
    """Return where fetched files are kept: `$XDG_CACHE_HOME/disklab`.

    Where root has not said otherwise, where the user that runs servers may read them.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache is None and os.geteuid() == 0:
        cache = "/var/cache"
    return Path(cache or Path.home() / ".cache") / "disklab"


def exact_version(version: str | None) -> str:
    """Return the release that a version names: `5.0` is our newest of that line."""
    asked = version or DEFAULT_LINE
    if asked in RELEASES:
        return RELEASES[asked]
    if _EXACT.fullmatch(asked) is None:
        rule = "disklab starts Cassandra 4.0, 4.1 and 5.0 (3.11 does not run on Java 17)"
        way_out = did_you_mean(asked, RELEASES, f"write one of {', '.join(RELEASES)}, or 5.0.6")
        raise UserError(Problem("database.version", repr(asked), rule, way_out))
    return asked


def fetched(version: str | None = None, progress: Progress = say_nothing) -> Distribution:
    """Return a version from the cache; fetch it there first when it is missing.

    After the first time no network is used. Raises UserError without Maven, MachineError when
    Maven fails or the files in the cache are not those that were fetched.
    """
    exact = exact_version(version)
    folder = cache_folder() / "cassandra" / exact
    if not folder.exists():
        _fetch(exact, folder, progress)
    _verify(folder)
    agent = folder / "lib" / f"jolokia-agent-jvm-{JOLOKIA}-javaagent.jar"
    return _complete(Distribution(_version_of(folder / "lib"), folder / "lib", agent), folder)


def unpacked(home: Path, progress: Progress = say_nothing) -> Distribution:
    """Return the distribution in CASSANDRA_HOME. Raises UserError when there is none."""
    libraries = home / "lib"
    if not any(libraries.glob("apache-cassandra-*.jar")):
        rule = f"{libraries} holds no apache-cassandra-*.jar"
        way_out = "name the folder of an unpacked binary tarball of Apache Cassandra"
        raise UserError(Problem("CASSANDRA_HOME", str(home), rule, way_out))
    version = _version_of(libraries)
    if version.split("-")[0].rpartition(".")[0] not in RELEASES:
        exact_version(version)
    return _complete(Distribution(version, libraries, fetched(None, progress).jolokia), home)


def _version_of(libraries: Path) -> str:
    names = sorted(libraries.glob("apache-cassandra-[0-9]*.jar"))
    names = names or sorted(libraries.glob("cassandra-all-*.jar"))
    assert names, libraries
    return names[0].stem.removeprefix("apache-cassandra-").removeprefix("cassandra-all-")


def _complete(distribution: Distribution, folder: Path) -> Distribution:
    if not any(distribution.libraries.glob("jamm-*.jar")) or not distribution.jolokia.exists():
        raise MachineError(f"{folder}: jars are missing; remove the folder to fetch them again")
    return distribution


def _fetch(version: str, folder: Path, progress: Progress) -> None:
    """Fetch into a folder beside, and rename it when it is whole."""
    maven = find_program("mvn")
    if maven is None:
        rule = "Cassandra is fetched from Maven Central, and Maven is not installed"
        way_out = f"install it: {how_to_get('mvn')}; or set CASSANDRA_HOME to an unpacked tarball"
        raise UserError(Problem("mvn", "not found", rule, way_out))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{version}-") as name:
        made = Path(name)
        made.chmod(0o755)
        pom = _POM.format(cassandra=version, jolokia=JOLOKIA)
        (made / "pom.xml").write_text(pom, encoding="utf-8")
        # -C fails on a wrong checksum instead of warning.
        command = [maven, "-B", "-C", "-f", str(made / "pom.xml"), MAVEN_PLUGIN]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={made / 'lib'}"]
        _run_maven(command, version, progress)
        sums = {jar.name: _sum(jar) for jar in sorted((made / "lib").glob("*.jar"))}
        (made / MANIFEST).write_text(json.dumps(sums, indent=1), encoding="utf-8")
        try:
            made.rename(folder)
        except OSError:
            # Another disklab was quicker: its files are as good.
            if not (folder / MANIFEST).exists():
                raise
            return
        # TemporaryDirectory expects its folder.
        made.mkdir()


FILES_A_LINE = 25
"""Without a terminal, a line is printed after so many files."""


def _run_maven(command: list[str], version: str, progress: Progress) -> None:
    said: list[str] = []
    count = 0
    progress(f"fetching Cassandra {version} from Maven Central (66 MB, once)")
    # The user's own, with his proxies and settings.
    with programs.start(
        command, stdout=programs.PIPE, stderr=programs.STDOUT, folder=None, inherits=True
    ) as maven:
        assert maven.stdout is not None
        # A connection that hangs prints nothing, so the limit is kept from outside.
        limit = threading.Timer(FETCH_SECONDS, maven.kill)
        limit.start()
        try:
            for part in maven.stdout:
                line = part.decode(errors="replace")
                said = [*said, line.rstrip()][-200:]
                if "Downloaded from" in line and ".jar" in line:
                    count += 1
                    if count % FILES_A_LINE == 0:
                        progress(f"fetching Cassandra {version}: {count} files")
            maven.wait()
        except BaseException:
            maven.kill()
            raise
        finally:
            limit.cancel()
    if maven.returncode == -signal.SIGKILL:
        raise MachineError(
            f"Maven did not end within {FETCH_SECONDS:.0f} s; is Maven Central reached?"
        )
    if maven.returncode != 0:
        reasons = [line for line in said if line.startswith("[ERROR]")] or said
        raise MachineError(
            f"Maven could not fetch Cassandra {version}: {' '.join(reasons[:3])}; check the "
            "network and ~/.m2/settings.xml, or set CASSANDRA_HOME to an unpacked tarball"
        )


def _verify(folder: Path) -> None:
    """Hold the jars against what was fetched; tenths of a second for 66 MB."""
    sums: dict[str, str] = {}
    with suppress(UserError, ValidationError):
        sums = _SUMS.validate_json(reading.contents(folder / MANIFEST, reading.MANIFEST))
    wrong = [name for name, sum_ in sums.items() if _sum(folder / "lib" / name) != sum_]
    if wrong or not sums:
        which = ", ".join(wrong[:3]) or MANIFEST
        raise MachineError(
            f"{folder}: {which} is not what was fetched; remove the folder to fetch it again"
        )


def _sum(file: Path) -> str:
    if not file.exists():
        return "missing"
    with reading.opened(file, reading.JAR) as opened:
        digest = hashlib.sha256()
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
