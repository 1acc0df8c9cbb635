"""Memory plans: what a model takes and what a machine has."""
