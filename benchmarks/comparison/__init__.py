"""The parts of benchmarks/compare.py: files, contenders, rounds, and what is printed of them."""
