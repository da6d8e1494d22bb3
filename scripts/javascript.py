"""Names in the pages' scripts that nobody defines, or nobody uses: a page has no compiler to ask.

`python scripts/javascript.py` runs oxlint over the scripts of each page, joined as the page joins
them, because one uses the names of another.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from disklab.knob import SCRIPTS

PACKAGE = Path("python/disklab")
AXES = PACKAGE / "report/axes.js"
PAGES = {
    "knob": [AXES, *(PACKAGE / "knob" / name for name in SCRIPTS)],
    "worker": [PACKAGE / "knob/worker.js"],
    "live": [AXES, PACKAGE / "web/live.js"],
    "advice": [AXES, PACKAGE / "advice/page.js"],
    "report": [PACKAGE / "report/page.js"],
}
CONFIG = {
    "env": {"browser": True, "es2024": True, "worker": True},
    "categories": {"correctness": "off"},
    "globals": {"vegaEmbed": "readonly"},
    "rules": {"no-undef": "error", "no-unused-vars": "error", "no-redeclare": "error"},
}
UNUSED = "never used"
OXLINT = Path(sysconfig.get_path("scripts")) / "oxlint"


def complaints(files: Iterable[Path]) -> list[str]:
    """Return what is wrong with scripts that share one page, each by its file and line."""
    places: list[str] = []
    joined = ""
    for file in files:
        text = file.read_text(encoding="utf-8")
        places += [f"{file}:{number}" for number in range(1, text.count("\n") + 1)]
        joined += text
    with tempfile.TemporaryDirectory() as folder:
        config, page = Path(folder, "rules.json"), Path(folder, "page.js")
        config.write_text(json.dumps(CONFIG), encoding="utf-8")
        page.write_text(joined, encoding="utf-8")
        command = [str(OXLINT), "--config", str(config), "--format", "unix", str(page)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    lines = re.findall(r"page\.js:(\d+):\d+: (.*?) \[", ended.stdout)
    if ended.returncode and not lines:
        raise RuntimeError(f"oxlint: {ended.stdout}{ended.stderr}")
    return [f"{places[int(line) - 1]}: {message}" for line, message in lines]


def main() -> int:
    """Print every complaint; return 1 where there is one."""
    counted = Counter(complaint for files in PAGES.values() for complaint in complaints(files))
    shared = Counter(str(file) for files in PAGES.values() for file in files)
    # What one page leaves unused another may use.
    wrong = [
        complaint
        for complaint, pages in counted.items()
        if UNUSED not in complaint or pages == shared[complaint.partition(":")[0]]
    ]
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
