"""Words that do something where they are taken for more than words."""

from __future__ import annotations

import random
from pathlib import Path

FORMS = (
    "touch {there}",
    "x; touch {there} #",
    "$(touch {there})",
    "`touch {there}`",
    "'; touch {there}; '",
    '"; touch {there}; "',
    "a\ntouch {there}",
    "a && touch {there} &",
    "| touch {there}",
    "-t; touch {there}",
    "1'\narchive_command = 'touch {there}",
    "1 --config-file={there}",
    "1,ysql_pg_conf_csv=x",
    "../../../../{there}",
    "{there}",
    "file://{there}",
    "http://127.0.0.1:1/",
    "127.0.0.1:1",
    "')]; concat('",
    "[resourceGroup().location]",
    "${{image}}",
    "%{{ for x in y }}",
    "!!python/object/apply:os.system ['touch {there}']",
    "com.sun.rowset.JdbcRowSetImpl",
    "\x1b]52;c;AAAA\x07",
    "\x00",
    "\u2028touch {there}",
    "\uff11\uff10",
    "1e400",
    "9" * 400,
    "nan",
    "~",
    "",
    " ",
)


def hostile_word(chance: random.Random, there: Path) -> str:
    """Return a word that runs a command, names a file or a host, or is none at all."""
    return chance.choice(FORMS).format(there=there)
