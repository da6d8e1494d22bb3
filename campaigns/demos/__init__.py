"""The demo again and again on a busy machine: how long does it wait while nothing runs?

A newcomer's first minutes are the demo. It once stood still for four minutes, three times, waiting
for an estimate that nobody renewed, and nothing on the terminal said so.
"""
