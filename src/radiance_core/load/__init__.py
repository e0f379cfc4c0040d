"""Load: read planes and let the resolved kernels lay them out, in parallel."""
