"""Write speech piece by piece as WAV, PCM, MP3, FLAC, Opus or AAC, into a file or a stream. No ffmpeg."""
