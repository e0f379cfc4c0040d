"""Small random checkpoints of every family, made with transformers, and its answers for them."""
