"""Plan: where every byte will be before any is allocated, with the arithmetic to check it."""
