"""Products and steps for CPUs."""
