"""Measure which values of kernels' axes are fastest for a model on this machine: ``rad-tune``."""
