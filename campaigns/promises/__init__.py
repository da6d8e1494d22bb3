"""Whether what advice recommends keeps its promise when it is simulated again, all day long."""
