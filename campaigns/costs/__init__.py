"""What requests of a real Cassandra take of the processor."""
