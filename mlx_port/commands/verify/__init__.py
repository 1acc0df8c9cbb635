"""What `mlx-port verify` measures: both sides on the same inputs, one layer at a time."""
