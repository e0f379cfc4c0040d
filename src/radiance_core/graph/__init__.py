"""Declare: an architecture builds its graph once, from metadata; nothing computes."""
