"""Checks that no linter makes: the length of files and functions, and forbidden names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LIMIT = 800  # STYLE.md: 400 lines is a smell, 800 a limit
FUNCTION_LIMIT = 70  # STYLE.md
LINE_LIMIT = 200  # STYLE.md: what a reader's eye follows
HEAD = 400  # characters of a page, in which it says that it is generated
PACKAGE = Path("python/disklab")
# What a house that grew a second copy of itself is held to, outside the room of machines.
HOUSE = (
    (r"^\s*(import|from) subprocess\b", "start programs by LocalMachine or `machines.programs`"),
    (r"isinstance\([^)]*Machine\b", "put what differs behind the protocol `Machine`"),
    (r"^class (Far|Built)", "a thing elsewhere is the same class over another machine"),
)
# What there is too much of, and never becomes more: which files, a pattern, how often it stands in
# them today, and what to write instead. Whoever takes some away lowers the number.
RATCHETS = (
    (r"\.rs$", r"\bhas_not", 0, "ask `has`, and turn the answer round"),
    (r"\.rs$", r"^\s*impl (?:[\w:]+::)?Code for ", 2, "declare events by `events!`"),
    (
        r"^python/disklab/(?!databases/|database_facts|database_settings).*\.py$",
        r"[\"'](?:cassandra|etcd|mariadb|mysql|postgresql|redis|yugabytedb)[\"']",
        32,
        "ask the facts of a database, not for its name",
    ),
    (
        # Root goes through folders of others there. What is left: groups of the kernel's, a record
        # of our own, and a mount point that was not mounted yet.
        r"^python/disklab/hosts/.*\.py$",
        r"\bos\.remove\(|\b(?:rmtree|umount2?)\((?!.*dir_fd)|\.(?:rmdir|unlink|chown)\((?!.*dir_fd)",
        4,
        "name it in a folder that is held open (`dir_fd`): a path may lead elsewhere by then",
    ),
)
LONG_FUNCTIONS = {"new_order": 80}
"""Longer than the limit since before it was looked for in them; never longer."""
FORBIDDEN_NAMES = re.compile(r"(^|[_-])(utils?|helpers?|managers?|misc|common|v2)($|[_.-])")


def tracked_sources() -> list[Path]:
    """Return the source files that git knows or would add."""
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.py",
        "*.rs",
        "*.js",
    ]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Path(line) for line in listing.splitlines() if Path(line).exists()]


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and number of lines of each function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def rust_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and number of lines of each function, as rustfmt indents them."""
    opened: list[tuple[str, int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if found := re.match(
            r"^(\s*)(?:pub(?:\([a-z ]+\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)", line
        ):
            opened.append((found[2], number, found[1]))
        while opened and line.rstrip() == opened[-1][2] + "}":
            name, first, _ = opened.pop()
            yield name, first, number - first + 1


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if FORBIDDEN_NAMES.search(path.name):
        yield f"{path}: the name says nothing; name it after its idea"
    if lines > FILE_LIMIT:
        yield f"{path}: {lines} lines; the limit is {FILE_LIMIT}: split it by idea"
    if path.suffix == ".js":
        return
    functions = python_functions(text) if path.suffix == ".py" else rust_functions(text)
    for name, first, length in functions:
        limit = LONG_FUNCTIONS.get(name, FUNCTION_LIMIT)
        if length > limit:
            yield f"{path}:{first}: {name} has {length} lines; the limit is {limit}"


def against_the_house(path: Path) -> Iterator[str]:
    """Yield where a file of the package knows which machine it runs on, or starts programs."""
    if PACKAGE not in path.parents or PACKAGE / "machines" in path.parents:
        return
    if path.parent.parent == PACKAGE / "kits":
        # The program of a kit runs on a host, which has no disklab.
        return
    text = path.read_text(encoding="utf-8")
    for pattern, way_out in HOUSE:
        for match in re.finditer(pattern, text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match[0].strip()}: {way_out}"


def ratchets(sources: list[Path]) -> Iterator[str]:
    """Yield what there is more of than there was."""
    for files, pattern, most, way_out in RATCHETS:
        paths = [path for path in sources if re.search(files, path.as_posix())]
        texts = (path.read_text(encoding="utf-8") for path in paths)
        count = sum(len(re.findall(pattern, text, re.MULTILINE)) for text in texts)
        if count > most:
            yield f"{pattern} stands {count} times in {files}, {most} before: {way_out}"


def rust_modules(crate: Path) -> dict[tuple[str, ...], Path]:
    """Return the files of a crate by the paths of their modules."""
    source = crate / "src"
    modules = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        modules[parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts] = path
    return modules


def used_paths(text: str) -> Iterator[list[str]]:
    """Yield the paths that a Rust file names outside its tests; `use a::{b, c::d}` has two."""
    text = re.sub(r"//.*", "", text.partition("#[cfg(test)]\nmod ")[0])

    def expanded(prefix: list[str], tree: str) -> Iterator[list[str]]:
        depth, part = 0, ""
        for letter in tree + ",":
            depth += (letter == "{") - (letter == "}")
            if letter != "," or depth:
                part += letter
                continue
            head, brace, rest = part.partition("{")
            path = prefix + [name.strip() for name in head.split(" as ")[0].split("::")]
            if brace:
                yield from expanded(path[:-1], rest.rpartition("}")[0])
            elif part.strip():
                yield path
            part = ""

    for use in re.finditer(r"\buse ([^;]+);", text):
        yield from expanded([], use[1])
    for path in re.finditer(r"\b[a-z_]\w*(?:::\w+)+", re.sub(r"\buse [^;]+;", "", text)):
        yield path[0].split("::")


def uses_of_modules(crate: Path) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Return which modules of its crate each module uses, but for those that it is a part of.

    A file of a folder adds methods to the type of the file above it: the two are one thing.
    """
    modules = rust_modules(crate)
    uses: dict[tuple[str, ...], set[tuple[str, ...]]] = {module: set() for module in modules}
    for module, path in modules.items():
        for names in used_paths(path.read_text(encoding="utf-8")):
            target, rest = list(module), names
            if names[0] == "crate":
                target, rest = [], names[1:]
            while rest and rest[0] in ("super", "self"):
                target, rest = target[: len(target) - (rest[0] == "super")], rest[1:]
            while rest and (*target, rest[0]) in modules:
                target, rest = [*target, rest[0]], rest[1:]
            if module[: len(target)] != tuple(target):
                uses[module].add(tuple(target))
    return uses


def circles(crate: Path) -> Iterator[str]:
    """Yield complaints about files of a crate that use each other in a circle."""
    uses = uses_of_modules(crate)
    left = dict(uses)
    while True:
        # Who uses nobody that is left, or is used by nobody that is left, is in no circle.
        used = {target for targets in left.values() for target in targets}
        kept = {module: targets & left.keys() for module, targets in left.items()}
        kept = {module: targets for module, targets in kept.items() if targets and module in used}
        if kept == left:
            break
        left = kept
    if left:
        names = ", ".join(sorted("::".join(module) for module in left))
        yield f"{crate}: files that use each other in a circle, or lie between two: {names}"


def long_lines() -> Iterator[str]:
    """Yield complaints about lines of pages that somebody wrote, but for rows of their tables."""
    for page in (*Path().glob("*.md"), *Path("docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "do not edit" in text[:HEAD] or Path("docs/examples") in page.parents:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > LINE_LIMIT and not (line.startswith("|") and page.parent.name):
                yield f"{page}:{number}: {len(line)} characters; the limit is {LINE_LIMIT}"


def main() -> int:
    """Print every complaint; return 1 when there is one."""
    sources = tracked_sources()
    found = [complaint for path in sources for complaint in complaints(path)]
    found += [complaint for path in sources for complaint in against_the_house(path)]
    found += long_lines()
    found += ratchets(sources)
    found += [
        complaint for crate in sorted(Path("crates").iterdir()) for complaint in circles(crate)
    ]
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
