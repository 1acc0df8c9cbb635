"""`mlx-port verify`: both sides on the same inputs, one layer at a time."""
