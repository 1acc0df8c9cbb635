"""Small networks of every model, with random weights."""
