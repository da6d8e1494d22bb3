"""What a prediction can be made without, to see what each mechanism is worth."""

MECHANISMS = {
    "uneven_ownership": "each node owns the same share of the ring",
    "read_around": "a miss reads its own page only",
    "index_pages": "index pages are in memory from the start",
    "throttle_windows": "limits refill continuously",
    "chunk_borders": "an I/O ends as one, not chunk by chunk",
    "pauses": "no node ever pauses",
    "client_warm_up": "a client's first operation costs no more CPU than a later one",
    "client_cpu": "the client has a core for every thread",
    "server_cpu": "the nodes have a core for every request",
    "slots": "every request finds a read or write slot",
    "page_cache_hits": "nothing that was read stays in the page cache",
    "network_spread": "every message takes the mean time of its way",
    "message_overhead": "a message between nodes waits at neither end",
    "dynamic_snitch": "reads ask replicas in the ring's order, however long they take",
    "speculative_retry": "no further replica is asked for a read that takes long",
    "cpu_by_bytes": "a row costs the CPU that one of 4,090 bytes does",
    "decompression_cpu": "compressed chunks open by themselves",
    "background_io": "flush, compaction and commit log cost nothing",
    "paced_tables": "a memtable goes to the disk at once, as fast as that takes it",
    "file_locks": "no write of a file waits for its reads",
    "relation_extension": "a row that finds no room in its page has an empty one at once",
    "full_page_images": "a page's first change after a checkpoint logs no more than a later one",
    "own_read_ahead": "all backends read a file through one descriptor, in the order of all",
    "fill_order": "rows lie in the order of their keys, however many sessions wrote them",
    "filled_tables": "all rows of a node lie in one table, as after a major compaction",
    "index_splits": "full leaves of a new index of InnoDB take every entry",
    "index_locks": "a row that finds its leaf of MariaDB full waits for no search",
    "purge": "deleted rows of MariaDB cost nothing once they are committed",
    "range_estimates": "InnoDB reads no page to estimate how many rows a range has",
    "doublewrite": "InnoDB writes each page once",
    "midpoint_insertion": "a page that InnoDB reads is as young as one that was used again",
    "adaptive_flushing": "InnoDB writes pages only when room is needed, in its pool or redo log",
    "flow_control": "other nodes of a Galera cluster apply at once, and hold no commit up",
    "sync_period": "MariaDB syncs its binary log with each group of commits",
    "recovery_reads": "after a crash InnoDB has the pages of its redo log in its pool",
    "active_list": "the page cache has one list, on which a used page goes round once more",
}
"""Every mechanism of the simulator, and what is so without it."""

SINGLE_SERVERS_ALONE = (
    "file_locks",
    "relation_extension",
    "full_page_images",
    "own_read_ahead",
    "fill_order",
    "index_splits",
    "index_locks",
    "purge",
    "range_estimates",
    "doublewrite",
    "midpoint_insertion",
    "adaptive_flushing",
    "flow_control",
    "sync_period",
    "recovery_reads",
)
"""Those of PostgreSQL and MariaDB, which no cell of another database has."""

NOT_IN_STUDIES = ("filled_tables", "active_list")
"""Those that no cell of a published study has: all of their tables are read at random, and what is
read in a run has room in the page cache."""
