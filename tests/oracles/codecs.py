"""transformers' codecs of random configurations and weights, saved by it, and what ours gives for each part.

Strides odd and even, widths that do not divide, clips shorter than a kernel, several blocks a rate. The
codebooks of EnCodec and Mimi are taken from latents of other clips, as training would do, so that every
codebook's choice matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from tests.golden import mimi_checks
from tests.golden.codec_bench import CodecSide
from tests.golden.dac_checks import search
from tests.golden.encodec_checks import embedding
from tests.oracles.weights import randomise
from tts_core.codecs.encodec import codebooks_at

Parts = Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[CodecSide, np.ndarray], np.ndarray]]]
MIMI = mimi_checks


def clip(seed: int, batch: int, length: int) -> np.ndarray:
    """Noise under a slow envelope; the second item is quiet. (B, L)."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(0, 0.3, (batch, length)) * (1.2 + np.sin(np.arange(length) / 97))
    samples[1:] *= 0.1
    return samples.astype(np.float32)


class Oracle:
    """A codec of transformers, and the folder in which it is saved.

    parts: of the encoder, by name: transformers' and ours.  books: numbers of codebooks to compare.
    """

    kind: str
    parts: Parts

    def __init__(self, network: Any, folder: Path, seed: int = 5):
        self.network, self.folder = network.eval(), folder
        randomise(self.network, seed)
        with torch.inference_mode():
            self.fill_codebooks()
        self.network.save_pretrained(folder)

    @property
    def books(self) -> Sequence[int]:
        return (self.network.config.n_codebooks,)

    def fill_codebooks(self) -> None:
        """Take the entries from latents."""

    def whole(self, samples: np.ndarray) -> Tensor:
        """What its encoder takes: of DAC, whole frames. (B, L) → (B, 1, L)."""
        return torch.from_numpy(samples)[:, None]

    def latents(self, samples: np.ndarray) -> Tensor:
        *_, (last, _) = self.parts.values()
        return last(torch.from_numpy(samples)[:, None])

    def encode(self, samples: Tensor, books: int) -> Tensor:
        """(B, 1, L) → (B, Q, T)."""
        return self.network.encode(samples).audio_codes

    def decode(self, codes: Tensor) -> Tensor:
        """(B, Q, T) → (B, L)."""
        return self.network.decode(audio_codes=codes).audio_values.reshape(len(codes), -1)

    def lead(self, sides: Sequence[CodecSide], samples: np.ndarray, codes: np.ndarray) -> float:
        """Factor by which the rounding of float32 latents can grow before any code changes.

        sides: in float64 and float32.
        """
        raise NotImplementedError


class Dac(Oracle):
    kind = "dac"
    configs: Mapping[Any, Mapping[str, Any]] = {
        "odd strides": {"downsampling_ratios": [3, 2, 5], "n_codebooks": 4, "codebook_size": 128},
        "even strides": {"downsampling_ratios": [2, 4, 4], "n_codebooks": 3, "codebook_size": 64},
    }

    def __init__(self, name: str, folder: Path):
        sizes = {"codebook_dim": 6 if name == "odd strides" else 8, **self.configs[name]}
        config = transformers.DacConfig(
            encoder_hidden_size=16, decoder_hidden_size=128, sampling_rate=16000, **sizes
        )
        network = transformers.DacModel(config)
        self.parts = {"encoder": (network.encoder, embedding)}
        super().__init__(network, folder, seed=7)

    def whole(self, samples: np.ndarray) -> Tensor:
        hop = int(np.prod(self.network.config.downsampling_ratios))
        return torch.nn.functional.pad(super().whole(samples), (0, -samples.shape[1] % hop))

    def lead(self, sides: Sequence[CodecSide], samples: np.ndarray, codes: np.ndarray) -> float:
        margins = [search(side, embedding(side, samples), codes)[1] for side in sides]
        return float(margins[0].min() / np.abs(margins[1] - margins[0]).max())


class Encodec(Oracle):
    kind = "encodec"
    configs: Mapping[Any, Mapping[str, Any]] = {
        "8-5-4-2": {"num_filters": 5, "hidden_size": 12, "codebook_size": 64, "num_lstm_layers": 2},
        "3-2-5": {
            **{"upsampling_ratios": [3, 2, 5], "num_filters": 7, "hidden_size": 9, "compress": 3},
            **{"kernel_size": 5, "last_kernel_size": 3, "residual_kernel_size": 5, "num_lstm_layers": 1},
            **{"codebook_size": 32, "target_bandwidths": [4.0, 13.5], "sampling_rate": 16000},
        },
        "7-3": {
            **{"upsampling_ratios": [7, 3], "num_filters": 4, "hidden_size": 8, "kernel_size": 3},
            **{"last_kernel_size": 9, "num_lstm_layers": 3, "codebook_size": 64},
            **{"target_bandwidths": [5.0, 12.0], "sampling_rate": 8000},
        },
    }

    def __init__(self, name: str, folder: Path):
        sizes = {"target_bandwidths": [1.5, 3.0], "codebook_dim": self.configs[name]["hidden_size"]}
        config = transformers.EncodecConfig(**{**sizes, **self.configs[name]})
        network: Any = transformers.EncodecModel(config)
        self.parts = {"encoder": (network.encoder, embedding)}
        super().__init__(network, folder)

    @property
    def rates(self) -> dict[int, float]:
        """Bandwidths in kbps by their number of codebooks."""
        config = self.network.config
        sizes = config.sampling_rate, int(np.prod(config.upsampling_ratios)), config.codebook_size
        return {codebooks_at(rate, *sizes): rate for rate in config.target_bandwidths}

    @property
    def books(self) -> Sequence[int]:
        return [*self.rates]

    def fill_codebooks(self) -> None:
        """Take the entries from the residuals of some latents after the codebooks before."""
        hop = int(np.prod(self.network.config.upsampling_ratios))
        rest = self.latents(clip(99, 2, 300 * hop)).transpose(1, 2).flatten(0, 1)
        generator = torch.Generator().manual_seed(6)
        for layer in self.network.quantizer.layers:
            book = layer.codebook.embed
            book.copy_(rest[torch.randperm(len(rest), generator=generator)[: len(book)]] * 0.9)
            rest = rest - book[torch.cdist(rest, book).argmin(-1)]

    def encode(self, samples: Tensor, books: int) -> Tensor:
        return self.network.encode(samples, bandwidth=self.rates[books]).audio_codes[0]

    def decode(self, codes: Tensor) -> Tensor:
        return self.network.decode(codes[None], [None]).audio_values[:, 0]

    def lead(self, sides: Sequence[CodecSide], samples: np.ndarray, codes: np.ndarray) -> float:
        """A latent moved by m changes the difference of its distances to two entries by at most 2 m times the
        distance of these.
        """
        latents, known = (embedding(side, samples) for side in sides)
        moved = np.linalg.norm(latents - known, axis=1).max()
        rest, least = latents.swapaxes(1, 2), np.inf
        for q in range(codes.shape[1]):
            entries = sides[0].codec.quantizer.layers[q].codebook.embed.detach().numpy()
            distance = np.square(rest[:, :, None] - entries).sum(-1)
            first, second = np.argsort(distance, axis=-1)[..., :2].transpose(2, 0, 1)
            gap = np.diff(np.sort(distance, axis=-1)[..., :2], axis=-1)[..., 0]
            apart = np.linalg.norm(entries[first] - entries[second], axis=-1)
            least = min(least, (gap / (2 * apart * moved)).min())
            rest = rest - entries[codes[:, q]]
        return least


class Mimi(Oracle):
    kind = "mimi"
    configs: Mapping[Any, Mapping[str, Any]] = {seed: {} for seed in range(6)}

    def __init__(self, seed: int, folder: Path):
        network: Any = transformers.MimiModel(transformers.MimiConfig(**self.sizes(seed)))

        def attended(samples: Tensor) -> Tensor:
            steps = network.encoder.encoder_seanet(samples).transpose(1, 2)
            return network.encoder_transformer(steps)[0].transpose(1, 2)

        self.parts = {
            "convolved": (network.encoder.encoder_seanet, MIMI.convolved),
            "attended": (attended, MIMI.attended),
            "latents": (lambda samples: network.downsample(attended(samples)), MIMI.latents),
        }
        super().__init__(network, folder)

    @staticmethod
    def sizes(seed: int) -> dict[str, Any]:
        """A random configuration that transformers accepts; the rate gives two steps a frame."""
        rng = np.random.default_rng(seed)
        ratios, heads = [int(n) for n in rng.integers(2, 6, rng.integers(1, 4))], int(rng.integers(1, 4))
        width = 2 * heads * int(rng.integers(2, 4))
        dim = width if seed % 3 == 0 else int(rng.integers(4, 10))
        drawn = {
            **{"num_filters": (4, 8), "num_residual_layers": (1, 4), "dilation_growth_rate": (1, 4)},
            **{"kernel_size": (1, 9), "last_kernel_size": (1, 6), "residual_kernel_size": (1, 6)},
            **{"compress": (1, 4), "num_hidden_layers": (1, 4), "intermediate_size": (5, 30)},
            **{"sliding_window": (2, 12), "num_quantizers": (3, 6), "num_semantic_quantizers": (1, 3)},
        }
        return {
            **{name: int(rng.integers(*span)) for name, span in drawn.items()},
            **{"sampling_rate": 25 * int(np.prod(ratios)), "frame_rate": 12.5, "upsampling_ratios": ratios},
            **{"hidden_size": width, "num_attention_heads": 2 * heads, "num_key_value_heads": heads},
            **{"head_dim": 2 * int(rng.integers(1, 6)), "upsample_groups": width, "codebook_size": 32},
            **{"codebook_dim": dim, "vector_quantization_hidden_dimension": dim},
        }

    @property
    def books(self) -> Sequence[int]:
        return self.network.config.num_semantic_quantizers, self.network.config.num_quantizers

    def fill_codebooks(self) -> None:
        """Take the entries from what other clips' latents leave after the codebooks before."""
        found = self.latents(clip(99, 2, 200 * self.network.config.sampling_rate * 2 // 25))
        generator, quantizer = torch.Generator().manual_seed(6), self.network.quantizer
        for half in (
            quantizer.semantic_residual_vector_quantizer,
            quantizer.acoustic_residual_vector_quantizer,
        ):
            rest = half.input_proj(found) if half.input_proj is not None else found
            rest = rest.transpose(1, 2).flatten(0, 1)
            for layer in half.layers:
                book = layer.codebook
                some = torch.randperm(len(rest), generator=generator)[: book.codebook_size]
                usage = torch.rand(book.codebook_size, generator=generator) * 3 + 0.1
                book.cluster_usage.copy_(usage)
                book.embed_sum.copy_(0.9 * rest[some] * usage[:, None])
                book._embed = None
                rest = rest - book.embed[torch.cdist(rest, book.embed).argmin(-1)]

    def encode(self, samples: Tensor, books: int) -> Tensor:
        return self.network.encode(samples, num_quantizers=books)[0]

    def decode(self, codes: Tensor) -> Tensor:
        return self.network.decode(codes)[0][:, 0]

    def lead(self, sides: Sequence[CodecSide], samples: np.ndarray, codes: np.ndarray) -> float:
        """A latent moved by m changes the difference of its distances to two entries by at most 2 m times the
        norm of the projection into the codebooks.
        """
        truth, known = (MIMI.latents(side, samples) for side in sides)
        moved = np.linalg.norm(truth - known, axis=1).max()
        quantizer, gain = sides[0].codec.quantizer, 1.0
        for half in (
            quantizer.semantic_residual_vector_quantizer,
            quantizer.acoustic_residual_vector_quantizer,
        ):
            for weight in half.input_proj.parameters():
                gain = max(gain, float(torch.linalg.matrix_norm(weight[..., 0].detach(), 2)))
        gaps, _ = MIMI.margins(sides[0], truth, codes)
        return float(gaps.min() / (2 * gain * moved))


KINDS = {each.kind: each for each in (Dac, Encodec, Mimi)}
