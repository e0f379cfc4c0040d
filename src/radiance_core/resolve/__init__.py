"""Resolve: which kernel serves each op in each band, or why none does."""
