"""Talks to disklab-engine: finds it, starts emulated hosts, asks their control sockets."""
