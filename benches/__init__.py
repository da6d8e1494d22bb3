"""Benchmarks: what disklab's emulator reaches on this machine, beside its peers.

Run `make bench` (small, minutes) or `python -m benches --size large`. Nothing here is a test: a
figure is printed with its spread and its peer, never asserted.
"""
