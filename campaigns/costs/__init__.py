"""What requests and compactions of a real Cassandra take of the processor."""
