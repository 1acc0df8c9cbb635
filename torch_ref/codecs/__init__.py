"""Audio codecs: waveform to codes and back."""
