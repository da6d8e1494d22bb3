"""Block traces: the I/Os that a machine's disk was really asked for, read into one form.

What it offers: `read` a file of blkparse, fio or MSR Cambridge, lay it out on a volume (`placed`),
and tell what it is made of (`mixture`).
"""

from disklab.traces.formats import MOST_IOS, Chosen, read
from disklab.traces.trace import (
    SECTOR_BYTES,
    Mixture,
    Outside,
    Placed,
    Trace,
    first,
    mixture,
    placed,
)
