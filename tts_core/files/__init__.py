"""Files of a model that somebody else wrote, read within bounds: weights headers, JSON, other texts."""
