"""How trials are run: their order, their conditions, and one file for each way of measuring.

`closed_loop`, `fixed` and `variable` are the three ways; `passes` is what they are made of, the
life of a trial from warm-up to figures. What trials share (hosts, database, filled data) is a
`Bed`.
"""
