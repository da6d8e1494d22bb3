"""What is known of cells in which prediction and rehearsal disagree."""

TABLES = (
    "rehearsal: which tables a fill leaves depends on how far its compactions fall behind; those "
    "of compactions that keep up are predicted, without rows that come while a memtable is switched"
)
LOG_PHASE = (
    "rehearsal: a pass of half a second sees a part of the commit log's period of 10 s, or none"
)
WRITES = (
    "simulator: what a compaction reads through the page cache, and what it takes from reads "
    "beside it, is not simulated"
)

ONE_DRAW = (
    "rehearsal: passes of 5,000 reads differ by 1.8 % (simulated with 12 seeds); the cell of "
    "4,090 B rehearsed again had 2.4 % fewer I/Os, 0.8 % more than predicted"
)

COMPRESSED = (
    "not known: as many I/Os as predicted within 3 %, and 6 % more bytes; its pass was 18 % slower "
    "than predicted"
)

WARMED = (
    "rehearsal: how much its warm-up read is taken from the rate of its pass, 21 % above the "
    "predicted one; with the predicted rate it has 2.6 % more I/Os than rehearsed, and not 4.8 % "
    "fewer"
)

IN_ORDER = (
    "simulator: whose row comes next in a fill is drawn among 16 sessions; the real ones queue for "
    "CPUs and locks, and leave rows in another order: with the order of a real fill, or that of a "
    "queue for two or four CPUs, 0.57, 0.26 and 0.43 I/Os are predicted of 4,090 B"
)

GROWTH = (
    "not known in full: backends that hand one lock over commit in groups of other sizes than "
    "simulated, and each sync of the log writes its last page again (docs/predict.md); pages that "
    "a table grows by are written as zeros first, which is not simulated"
)

PURGED = (
    "simulator: pages of rollback segments and of undo stay young in its pool; our own server "
    "wrote 0.37 of them a delete, and 0.79 leaves. Why searches wait longer for purge than "
    "simulated is not known"
)
ADDED = (
    "not known in full: pages that rows are added to are written more often than rehearsed, by a "
    "fifth, and undo pages with them"
)
ESTIMATED = "not known: ten leaves are read to estimate how many rows are behind a key"

FLUSHED = (
    "simulator: the page cleaner writes up to 10 % too much; 16 threads of our own server wrote "
    "0.79 leaves, 0.04 pages of rollback segments and 0.03 of undo an update of 4,090 B"
)

FIRST_READS = (
    "simulator: a new page's zeros do not reach the disk before its rows, and a session reads no "
    "catalogs when it begins: 35 reads of 15 ms each in a pass of 5 s"
)

REASONS: dict[str, str] = {
    "rows of 4,090 B: read-ahead 512 KiB": ONE_DRAW,
    "rows of 1 KiB: read-ahead 512 KiB": ONE_DRAW,
    "rows of 4,090 B: ReadOnly, written": "within 3 % but for hits, which are 2 to 4 of 100 more",
    "rows of 4,090 B, lz4: second pass": COMPRESSED,
    "PostgreSQL, rows of 200 B: second pass": WARMED,
    "rows of 4,090 B: sequential": TABLES,
    "rows of 32 KiB: sequential": TABLES,
    "rows of 16 KiB: sequential": TABLES,
    "rows of 4,090 B: half writes": LOG_PHASE,
    "rows of 4,090 B: half writes, long": WRITES,
    "rows of 32 KiB: half writes": LOG_PHASE,
    "Cassandra 5.0, S10: a tenth inserts": LOG_PHASE,
    "Cassandra 5.0, S10: half inserts": LOG_PHASE,
    "Cassandra 5.0, gp2: a tenth inserts": LOG_PHASE,
    "Cassandra 5.0, gp2: half inserts": LOG_PHASE,
    "Cassandra 4.0, gp2: sequential": TABLES,
    "PostgreSQL, gp2 without credits: updates": "not known",
    "rows of 16 KiB: half writes": "not known",
    "PostgreSQL, rows of 4,090 B: sequential": IN_ORDER,
    "PostgreSQL, rows of 1 KiB: sequential": IN_ORDER,
    "PostgreSQL, rows of 4,090 B: half writes, 64 threads": GROWTH,
    "PostgreSQL, rows of 4,090 B: half writes, zipfian": "not known",
    "PostgreSQL, rows of 4,090 B: writes, one thread": "not known",
    "PostgreSQL, rows of 1 KiB: writes, one thread": "not known",
    "PostgreSQL, rows of 200 B: writes, one thread": "not known",
    **{
        f"PostgreSQL, rows of {name}": GROWTH
        for name in (
            "4,090 B: writes",
            "4,090 B: writes, four threads",
            "4,090 B: writes, 64 threads",
            "4,090 B: writes, zipfian",
            "1 KiB: writes",
            "1 KiB: writes, 64 threads",
            "200 B: writes",
        )
    },
    "PostgreSQL, rows of two sizes: half writes": GROWTH,
    "PostgreSQL, S10: inserts": FIRST_READS,
    "PostgreSQL, gp2 without credits: inserts": FIRST_READS,
    **{
        f"MariaDB, rows of {name}": FLUSHED
        for name in (
            "4,090 B: a tenth writes",
            "4,090 B: half writes",
            "4,090 B: writes",
            "4,090 B: writes, 64 threads",
            "4,090 B: writes, zipfian",
            "4,090 B: writes, binary log",
            "4,090 B: writes, binary log every 10",
            "4,090 B: writes, redo log once a second",
            "4,090 B: writes, no doublewrite",
            "1 KiB: a tenth writes",
            "1 KiB: half writes",
            "1 KiB: writes",
            "1 KiB: writes, zipfian",
        )
    },
    "MariaDB, rows of 1 KiB: writes, one thread": "not known",
    "MariaDB, rows of 4,090 B: inserts": ADDED,
    "MariaDB, rows of 4,090 B: half inserts": ADDED,
    "MariaDB, rows of 1 KiB: inserts": ADDED,
    "MariaDB, rows of 1 KiB: half inserts": ADDED,
    "MariaDB, rows of 4,090 B: a tenth deletes": PURGED,
    "MariaDB, rows of 1 KiB: a tenth deletes": PURGED,
    "MariaDB, rows of 1 KiB: half scans": ESTIMATED,
}
"""By the name of the cell, as the page has it."""
