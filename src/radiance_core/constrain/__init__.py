"""Constraints on a text: schemas, expressions and grammars, compiled to masks of tokens."""
