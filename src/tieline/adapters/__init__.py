"""Leaves: each room here speaks to one foreign world, and uses `runtime` for everything else.

Rule 1: deleting one breaks no other file; its packages come as its extra.
Rule 2: a door frames, flushes and translates; what an operation does is decided in `runtime`.

Source: DESIGN.md 2, 3, 4.
"""
