"""Memory plans: a model's needs and a machine's memory."""
