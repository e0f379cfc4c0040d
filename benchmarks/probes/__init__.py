"""Probes of a running server's behaviour under bad input, load and signals; faults.py runs them."""
