"""Real databases while one volume of three is slow, then stalls, held against the simulator."""
