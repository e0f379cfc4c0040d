"""The HTTP server: OpenAI-compatible routes over the engine's interface."""
