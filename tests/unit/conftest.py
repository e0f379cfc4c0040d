"""Fixtures of the unit tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plugin_folder import plugins

__all__ = ["plugins"]
