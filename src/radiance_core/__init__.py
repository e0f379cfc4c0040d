"""The engine: discovers plugins, plans and runs models, and serves them over HTTP."""
