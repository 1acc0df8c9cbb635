"""One way to speak: requests through a model's session."""
