"""Documents as programs: read the fenced blocks of a page and do what they say, word for word."""
