"""Text that arrives in pieces, spoken piece by piece as one speech, for models that read a text at once."""
