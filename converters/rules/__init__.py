"""Planning and application of weight maps."""
