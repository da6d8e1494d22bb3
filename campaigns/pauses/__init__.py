"""What operations of a real Cassandra allocate, and how long its collectors stop it."""
