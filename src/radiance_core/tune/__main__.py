"""``python -m radiance_core.tune``: rad-tune where its command is not installed."""

from radiance_core.tune.main import tune

tune()
