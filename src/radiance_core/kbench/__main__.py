"""``python -m radiance_core.kbench``: rad-kbench where its command is not installed."""

from radiance_core.kbench.main import kbench

kbench()
