"""Continuous batching: one thread that speaks the requests of many callers, on any model and either side."""
