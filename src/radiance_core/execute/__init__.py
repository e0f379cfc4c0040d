"""Run a bound step program: natively on a pool of threads, or in Python as its oracle.

``program`` is the border with the binder; ``executor`` and ``twin`` are the two ways to run one.
"""
