"""The shapes of published models, for those who have no files of them yet."""

from __future__ import annotations

from tts_core.codecs.dac import DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.vocos import VocosConfig
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.sampling import DEFAULTS_0626, DEFAULTS_V01
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.metavoice.config import FirstStageConfig, SecondStageConfig, SpeakerEncoderConfig


def _dia(*, cross_rope: bool) -> DiaConfig:
    return DiaConfig(
        encoder_config=DiaEncoderConfig(
            hidden_size=1024,
            intermediate_size=4096,
            num_hidden_layers=12,
            num_attention_heads=16,
            num_key_value_heads=16,
            head_dim=128,
            max_position_embeddings=1024,
            vocab_size=256,
            norm_eps=1e-5,
            rope_theta=10000.0,
        ),
        decoder_config=DiaDecoderConfig(
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=18,
            num_attention_heads=16,
            num_key_value_heads=4,
            head_dim=128,
            cross_hidden_size=1024,
            cross_num_attention_heads=16,
            cross_num_key_value_heads=16,
            cross_head_dim=128,
            max_position_embeddings=3072,
            vocab_size=1028,
            num_channels=9,
            norm_eps=1e-5,
            rope_theta=10000.0,
        ),
        delay_pattern=(0, 8, 9, 10, 11, 12, 13, 14, 15),
        bos_token_id=1026,
        eos_token_id=1024,
        pad_token_id=1025,
        cross_rope=cross_rope,
        sampling=DEFAULTS_V01 if cross_rope else DEFAULTS_0626,
    )


# config.json of nari-labs/Dia-1.6B-0626 and nari-labs/Dia-1.6B; both store float32
DIA = {"nari-labs/Dia-1.6B-0626": _dia(cross_rope=False), "nari-labs/Dia-1.6B": _dia(cross_rope=True)}
# config.json of descript/dac_44khz
DAC_44KHZ = DacConfig(
    sample_rate=44100,
    encoder_hidden_size=64,
    downsampling_ratios=(2, 4, 8, 8),
    hidden_size=1024,
    decoder_hidden_size=1536,
    upsampling_ratios=(8, 8, 4, 2),
    n_codebooks=9,
    codebook_size=1024,
    codebook_dim=(8,) * 9,
)

# MARS5-TTS, AR and NAR. Vocabularies stand only in the files. A guess that fits the files' sizes: 2,048 text
# ids and 6,144 speech ids, two special ids more in each.
MARS5_TEXT_IDS = 2050
MARS5_AR = CodecLMConfig(
    vocab_size=MARS5_TEXT_IDS + 6146,
    hidden_size=1536,
    intermediate_size=3584,
    num_hidden_layers=26,
    num_attention_heads=24,
    norm_eps=1e-5,
    rope_theta=10000.0,
    sliding_window=3000,
    speaker_layers=2,
    speaker_heads=24,
    speaker_intermediate_size=4608,
    speaker_norm_eps=4e-5,
    n_codebooks=8,
    codebook_rows=1025,
)
MARS5_NAR = ResidualTransformerConfig(
    text_rows=MARS5_TEXT_IDS + 1,
    n_classes=1025,
    hidden_size=1024,
    intermediate_size=3072,
    encoder_layers=8,
    decoder_layers=16,
    num_attention_heads=16,
    timestep_size=1024,
    speaker_layers=3,
    speaker_heads=16,
    speaker_intermediate_size=3072,
    n_codebooks=8,
    n_output_codebooks=8,
    codebook_rows=1025,
    norm_eps=4e-5,
    head_norm_eps=1e-5,
)
# encodec_24khz-d7cc33bc.th and facebook/encodec_24khz
ENCODEC_24KHZ = EncodecConfig(
    sample_rate=24000,
    hidden_size=128,
    num_filters=32,
    upsampling_ratios=(8, 5, 4, 2),
    kernel_size=7,
    last_kernel_size=7,
    residual_kernel_size=3,
    compress=2,
    num_lstm_layers=2,
    n_codebooks=32,
    codebook_size=1024,
)
# charactr/vocos-encodec-24khz
VOCOS_ENCODEC_24KHZ = VocosConfig(
    sample_rate=24000,
    n_codebooks=16,
    codebook_size=1024,
    input_channels=128,
    dim=384,
    intermediate_dim=1152,
    num_layers=8,
    num_bandwidths=4,
    n_fft=1280,
    hop_length=320,
)

# model_args of metavoiceio/metavoice-1B-v0.1's checkpoints, and its speaker encoder's tensors
METAVOICE_FIRST_STAGE = FirstStageConfig(
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=24,
    num_attention_heads=16,
    max_position_embeddings=2048,
    vocab_size=2562,
    speaker_embedding_size=256,
    norm_eps=1e-5,
    bias=False,
)
METAVOICE_SECOND_STAGE = SecondStageConfig(
    hidden_size=384,
    intermediate_size=1536,
    num_hidden_layers=6,
    num_attention_heads=6,
    max_position_embeddings=1024,
    vocab_sizes=(1538, 1025),
    target_vocab_sizes=(1025,) * 6,
    speaker_embedding_size=256,
    bias=False,
)
METAVOICE_SPEAKER_ENCODER = SpeakerEncoderConfig(
    n_mels=40, hidden_size=256, num_hidden_layers=3, speaker_embedding_size=256
)
