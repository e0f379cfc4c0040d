"""The engine: runs requests on a bound step program, one decision per step."""
