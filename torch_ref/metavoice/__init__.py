"""MetaVoice-1B: text and a speaker to speech, in two stages."""
