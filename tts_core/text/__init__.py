"""Text processing shared by the models."""
