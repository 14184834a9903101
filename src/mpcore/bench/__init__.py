"""Microbenchmarks: what this machine can do, and what mpcore and others make of it.

Behind `mpcore bench`; not part of the public Python API. A *suite* (`suites/`) says
what is computed, what it costs at least, and how each implementation is called; every
implementation runs in a process of its own (`worker`), which this side drives.
"""
