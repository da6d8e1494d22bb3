"""Where disks and databases run: emulated hosts of this machine.

Nothing here writes, formats, mounts, unmounts or detaches anything before `ownership` has proved
that disklab made it.
"""
