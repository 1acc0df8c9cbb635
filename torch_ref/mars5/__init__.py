"""MARS5: text and a voice to speech, in two networks."""
