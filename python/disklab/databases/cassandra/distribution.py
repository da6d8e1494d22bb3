"""Cassandra's program files: fetched once by Maven, or an unpacked tarball of Apache's."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab import reading
from disklab.catalog.suggest import did_you_mean
from disklab.databases.fetching import by_maven
from disklab.databases.place import ServerHost
from disklab.databases.program_cache import kept
from disklab.databases.protocol import Progress, say_nothing
from disklab.errors import MachineError, Problem, UserError

# Finding a Java that Cassandra runs on.

# Apache's tested Java for 5.0 is 17 (and 11); 4.0 and 4.1 run on 17 as well (our own starts).
WANTED = 17
# From 18 on the security manager, which Cassandra installs, must be allowed by an option; 24 (JEP
# 486) removed it for good.
FIRST_WITHOUT_SECURITY_MANAGER = 24
WHERE = (Path("/usr/lib/jvm"), Path("/opt"), Path("/Library/Java/JavaVirtualMachines"))
# Java's homes of a host as `find_java` looks for them, with the version of their `release` files.
_FIND = """for d in "$JAVA_HOME" /usr/lib/jvm/* /opt/*; do
  [ -x "$d/bin/java" ] && [ -r "$d/release" ] && \\
    echo "$(readlink -f "$d") $(grep -m1 ^JAVA_VERSION= "$d/release")"
done; true"""
_FOUND = re.compile(r'(/\S+) JAVA_VERSION="(?:1\.)?(\d+)', re.ASCII)
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)[^"]*"', re.MULTILINE)


@dataclass(frozen=True)
class Java:
    """A Java on this machine."""

    home: Path
    major: int

    @property
    def program(self) -> Path:
        """The `java` to run."""
        return self.home / "bin/java"

    @property
    def options(self) -> list[str]:
        """What this Java needs to run Cassandra at all."""
        return ["-Djava.security.manager=allow"] if self.major > WANTED else []


def find_java(environment: dict[str, str] | None = None, where: tuple[Path, ...] = WHERE) -> Java:
    """Return the best Java of this machine: 17, else the nearest one up to 23.

    JAVA_HOME comes first, then `java` on PATH, then where distributions install it. Raises
    UserError when there is none, naming those that were found and why they will not do.
    """
    environment = dict(os.environ) if environment is None else environment
    found = list(_installed(environment, where))
    fitting = [one for one in found if WANTED <= one.major < FIRST_WITHOUT_SECURITY_MANAGER]
    if fitting:
        # min keeps the first of equals: the order of the search.
        return min(fitting, key=lambda one: one.major)
    has = ", ".join(f"Java {one.major} in {one.home}" for one in found) or "no Java"
    rule = (
        f"Cassandra runs on Java {WANTED} (from Java {FIRST_WITHOUT_SECURITY_MANAGER} on there is "
        "no security manager, which it installs when it starts; before 17 its options differ)"
    )
    raise UserError(Problem("this machine", has, rule, f"install it: {how_to_get_java()}"))


def how_to_get_java() -> str:
    """Return the command that installs a Java that will do."""
    if shutil.which("dnf"):
        return "sudo dnf install java-17-openjdk-headless (or java-21-openjdk-headless)"
    return "sudo apt-get install openjdk-17-jre-headless (or openjdk-21-jre-headless)"


def _installed(environment: dict[str, str], where: tuple[Path, ...]) -> Iterator[Java]:
    seen = set()
    for home in _homes(environment, where):
        real = home.resolve()
        if real in seen or not (real / "bin/java").exists():
            continue
        seen.add(real)
        major = _major(real)
        if major is not None:
            yield Java(real, major)


def _homes(environment: dict[str, str], where: tuple[Path, ...]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    program = shutil.which("java", path=environment.get("PATH", os.defpath))
    if program is not None:
        yield Path(program).resolve().parent.parent
    for folder in where:
        if folder.is_dir():
            for home in sorted(folder.iterdir()):
                yield home
                yield home / "Contents/Home"


def _major(home: Path) -> int | None:
    """Read the version from the `release` file, which every OpenJDK has."""
    try:
        found = _VERSION.search(reading.text(home / "release", reading.RELEASE))
    except UserError:
        return None
    return None if found is None else int(found[1])


def look_for_java(host: ServerHost) -> Java | Problem:
    """Return the best Java of a host of the user's, as `find_java` does, or that none will do."""
    lines = host.run(["sh", "-c", _FIND]).splitlines()
    found = [match for line in lines if (match := _FOUND.match(line)) is not None]
    javas = [Java(Path(match[1]), int(match[2])) for match in found]
    fitting = [one for one in javas if WANTED <= one.major < FIRST_WITHOUT_SECURITY_MANAGER]
    if fitting:
        return min(fitting, key=lambda one: one.major)
    rule = f"Cassandra needs Java {WANTED}, up to 23; disklab installs nothing"
    way_out = (
        "install it there: apt-get install openjdk-17-jre-headless, dnf install "
        "java-17-openjdk-headless"
    )
    return Problem("", "java", rule, way_out)


# The newest of each line that we have started ourselves.
RELEASES = {"5.0": "5.0.6", "4.1": "4.1.10", "4.0": "4.0.18"}
DEFAULT_LINE = "5.0"
# Jolokia answers JMX reads and calls over HTTP inside the database's own process. Without it every
# flush would start a second JVM (nodetool: about 1 s and a core), and some figures (pending
# compactions, dropped messages) are in no virtual table of Cassandra 4 and 5.
JOLOKIA = "2.2.9"
FILES_A_LINE = 25
"""Without a terminal, a line is printed after so many files."""
LIBRARIES = "lib"
"""The folder of the jars in the cache."""
_EXACT = re.compile(r"(4\.[01]|5\.0)\.\d{1,3}", re.ASCII)


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
    folder = kept("cassandra", exact, LIBRARIES, lambda made: _fetch(exact, made, progress))
    libraries = folder / LIBRARIES
    agent = libraries / f"jolokia-agent-jvm-{JOLOKIA}-javaagent.jar"
    return _complete(Distribution(_version_of(libraries), libraries, agent), folder)


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


def _fetch(version: str, made: Path, progress: Progress) -> None:
    """Fetch into a folder."""
    count = 0

    def hear(line: str) -> None:
        nonlocal count
        if "Downloaded from" in line and ".jar" in line:
            count += 1
            if count % FILES_A_LINE == 0:
                progress(f"fetching Cassandra {version}: {count} files")

    progress(f"fetching Cassandra {version} from Maven Central (66 MB, once)")
    by_maven(
        [f"org.apache.cassandra:cassandra-all:{version}"],
        [f"org.jolokia:jolokia-agent-jvm:{JOLOKIA}:jar:javaagent"],
        made / LIBRARIES,
        f"Cassandra {version}",
        "; or set CASSANDRA_HOME to an unpacked tarball",
        hear,
    )
