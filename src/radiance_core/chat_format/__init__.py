"""How a model spells reasoning and tool calls, and how its text is taken apart accordingly."""
