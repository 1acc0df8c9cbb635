"""The step of MetaVoice's first stage."""
