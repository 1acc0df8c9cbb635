"""The engine that plans and applies weight maps."""
