"""What is known of cells in which prediction and rehearsal disagree."""

TABLES = (
    "simulator: a fill in the order of keys leaves several tables, each with keys that were "
    "written together; keys read in that order lie closer together than in the one table simulated"
)
LOG_PHASE = (
    "rehearsal: a pass of half a second sees a part of the commit log's period of 10 s, or none"
)
WRITES = (
    "simulator: what a compaction reads through the page cache, and what it takes from reads "
    "beside it, is not simulated"
)

WINDOWS = (
    "simulator: fewer and larger I/Os for windows of 512 KiB of which a part is in memory; "
    "several tables have more ends of windows than the one simulated"
)

THREADS = (
    "not known: with one thread the bytes agree; threads share each file's state of reading ahead"
)

BUFFERS = (
    "simulator: a row in two buffers of 8 KiB is read in two calls, the second of which reads "
    "ahead; simulated they are one"
)

OWN_WRITES = (
    "rehearsal: what the server writes for itself in seconds without a change (statistics, the "
    "control file, a page of the log) is not simulated; that is a few bytes for each operation"
)

IN_ORDER = (
    "simulator: whose row comes next in a fill is drawn among 16 sessions; the real ones queue for "
    "CPUs and locks, and leave rows in another order"
)

FILLED = (
    "not known: the host cache is taken to have the end of the tables as they are laid out, which "
    "a fill and the vacuum after it need not leave there"
)

GROWTH = (
    "rehearsal: log and pages that updates write in a pass of two seconds, a part of a checkpoint "
    "and of the pages that Linux writes back after 30 s; rates: backends that hand one lock over, "
    "and waited for a CPU for three fifths of the time (docs/predict.md)"
)

CHUNKS = (
    "not known: it agreed within 3 % before reading ahead was simulated as Linux 6.18 does it, and "
    "the other cells of compressed tables still do"
)

REASONS: dict[str, str] = {
    "rows of 4,090 B, lz4: ReadOnly, written": CHUNKS,
    "PostgreSQL, rows of 1 KiB: second pass": "not known; 5 % in I/Os",
    "rows of 4,090 B, read by pread: zipfian": BUFFERS,
    "rows of 4,090 B, read by pread: read-ahead 64 KiB": BUFFERS,
    "rows of 4,090 B, read by pread: ReadOnly, written": BUFFERS,
    "rows of 4,090 B, read by pread: second pass": BUFFERS,
    "rows of 4,090 B, lz4: second pass": "not known: what is read again was predicted to hit more",
    "rows of 16 KiB: read-ahead 64 KiB": THREADS,
    "rows of 16 KiB: zipfian": THREADS,
    "rows of 16 KiB: ReadOnly, written": THREADS,
    "rows of 4,090 B: sequential": TABLES,
    "rows of 200 B: sequential": TABLES,
    "rows of 32 KiB: sequential": TABLES,
    "rows of 1 KiB: sequential": TABLES,
    "rows of 16 KiB: sequential": TABLES,
    "rows of 4,090 B: half writes": LOG_PHASE,
    "rows of 4,090 B: half writes, long": WRITES,
    "rows of 32 KiB: half writes": LOG_PHASE,
    "rows of 16 KiB: half writes": "not known",
    "rows of 1 KiB: read-ahead 512 KiB": WINDOWS,
    "rows of 32 KiB: read-ahead 512 KiB": WINDOWS,
    "lognormal rows: half writes": LOG_PHASE,
    "lognormal rows: second pass": WINDOWS,
    "PostgreSQL, rows of 4,090 B: read-ahead 0": OWN_WRITES,
    "PostgreSQL, rows of 4,090 B: one thread": OWN_WRITES,
    "PostgreSQL, rows of 4,090 B: zipfian": OWN_WRITES,
    "PostgreSQL, rows of 1 KiB: one thread": OWN_WRITES,
    "PostgreSQL, rows of two sizes: one thread": OWN_WRITES,
    "PostgreSQL, rows of 200 B: read-ahead 0": OWN_WRITES,
    "PostgreSQL, rows of 4,090 B: ReadOnly, written": FILLED,
    "PostgreSQL, rows of 4,090 B: sequential": IN_ORDER,
    "PostgreSQL, rows of 1 KiB: sequential": IN_ORDER,
    "PostgreSQL, rows of 4,090 B: half writes": GROWTH,
    "PostgreSQL, rows of 4,090 B: half writes, 64 threads": GROWTH,
    "PostgreSQL, rows of 4,090 B: writes, 64 threads": GROWTH,
    "PostgreSQL, rows of 1 KiB: half writes": GROWTH,
    "PostgreSQL, rows of two sizes: half writes": GROWTH,
}
"""By the name of the cell, as the page has it."""
