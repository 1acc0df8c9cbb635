"""Write speech piece by piece as WAV, PCM, MP3, FLAC, Opus or AAC, into a file or a stream. No ffmpeg."""

from tts_core.audio.formats.names import FORMATS as FORMATS
from tts_core.audio.formats.names import SUFFIXES as SUFFIXES
from tts_core.audio.formats.names import Format as Format
from tts_core.audio.formats.writer import SoundWriter as SoundWriter
from tts_core.audio.formats.writer import StreamEncoder as StreamEncoder
