"""The framework-free half of every model: configurations, texts, requests, pipelines and memory plans."""
