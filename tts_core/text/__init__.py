"""Text front ends that models share."""
