"""Every kernel library that is installed, row by row, against the reference."""
