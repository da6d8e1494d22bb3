"""What is done with a database: turns a trial's workload into jobs of the load engine."""
