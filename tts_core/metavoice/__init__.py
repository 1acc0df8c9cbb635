"""MetaVoice without its networks: configuration, text, requests, pipeline."""
