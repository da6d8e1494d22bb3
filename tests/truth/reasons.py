"""What is known of cells in which prediction and rehearsal disagree."""

TABLES = (
    "simulator: a fill in the order of keys leaves several tables, each with keys that were "
    "written together; keys read in that order lie closer together than in the one table simulated"
)
FILLED_THROUGH = (
    "rehearsal: after a fill the host cache also holds blocks of tables that compaction has "
    "removed since; brought about otherwise, it holds the youngest blocks of what is left"
)
LOG_PHASE = (
    "rehearsal: a pass of half a second sees a part of the commit log's period of 10 s, or none"
)
WRITES = (
    "simulator: what a compaction reads through the page cache, and what it takes from reads "
    "beside it, is not simulated"
)

REASONS: dict[str, str] = {
    "rows of 4,090 B: sequential": TABLES,
    "rows of 4,090 B: ReadOnly, zipfian": FILLED_THROUGH,
    "rows of 4,090 B: half writes": LOG_PHASE,
    "rows of 4,090 B: half writes, long": WRITES,
}
"""By the name of the cell, as the page has it."""
