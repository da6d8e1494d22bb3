"""Finding a Java that Cassandra runs on."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab import reading
from disklab.databases.place import ServerHost
from disklab.errors import Problem, UserError

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
    raise UserError(Problem("this machine", has, rule, f"install it: {how_to_get()}"))


def how_to_get() -> str:
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
