"""Steps of MARS5's diffusion that leave out one shortcut each, for either framework."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from tts_core.mars5.diffusion import Cells, Diffusion
from tts_core.mars5.schedule import schedule
from tts_core.nn.positions import timestep_table


def torch_ops(device: Any, dtype: Any) -> SimpleNamespace:
    import torch
    import torch.nn.functional as F

    return SimpleNamespace(
        array=lambda x: torch.from_numpy(np.ascontiguousarray(x)).to(device),
        float=lambda x: x.float(),
        half=lambda x: x.to(dtype),
        cat=lambda parts, axis: torch.cat(parts, dim=axis),
        rows=lambda x, count: x.expand(count, -1, -1).contiguous(),
        mlp=lambda mlp, x: mlp(x),
        one_hot=lambda codes, k: torch.log(F.one_hot(codes, k).float().clamp(min=1e-7)),
        log_softmax=lambda x: x.log_softmax(dim=-1),
        uniform=lambda shape: torch.rand(shape, device=device),
        gumbel=lambda u: -torch.log((-torch.log(u.clamp(min=1e-7))).clamp(min=1e-7)),
    )


def mlx_ops(dtype: Any) -> SimpleNamespace:
    import mlx.core as mx

    def mlp(parts: Any, x: Any) -> Any:
        first, silu, second = parts
        return second(silu(first(x)))

    return SimpleNamespace(
        array=lambda x: mx.array(x),
        float=lambda x: x.astype(mx.float32),
        half=lambda x: x.astype(dtype),
        cat=lambda parts, axis: mx.concatenate(parts, axis=axis),
        rows=lambda x, count: mx.contiguous(mx.broadcast_to(x, (count, *x.shape[1:]))),
        mlp=mlp,
        one_hot=lambda codes, k: mx.log(
            mx.maximum((mx.arange(k) == codes[..., None]).astype(mx.int64).astype(mx.float32), 1e-7)
        ),
        log_softmax=lambda x: x - mx.logsumexp(x, axis=-1, keepdims=True),
        uniform=lambda shape: mx.random.uniform(shape=shape),
        gumbel=lambda u: -mx.log(mx.maximum(-mx.log(mx.maximum(u, 1e-7)), 1e-7)),
    )


def without(
    ops: SimpleNamespace, step: type, code: Any, text: np.ndarray, reference: np.ndarray
) -> dict[str, type]:
    """Build steps without a shortcut, by its name. All but the last draw the codes of the full step.

    step: the side's full step.  code: its modules.  text: (N,) ids.  reference: (Q, P) codes.
    """

    class TwoCalls(step):
        """Step with a call for each branch of guidance."""

        def logits(self, codes: Any, t: Any) -> Any:
            whole, branches = self.source, []
            for row in range(whole.text.shape[0]):
                self.source = whole._replace(text=whole.text[row : row + 1])
                branches.append(super().logits(codes, t))
            self.source = whole
            return ops.cat(branches, 0)

    class SpeakersEveryStep(step):
        """Step that computes both speaker vectors, the unconditional one from a masked reference."""

        def __init__(self, *given: Any):
            super().__init__(*given)
            frames, net = reference.T[None].astype(np.int64), self.network
            self.reference, self.nothing = map(ops.array, (frames, np.full(frames.shape, self.n_classes - 1)))
            self.positions, self.place = net.ref_pos_embedding(frames.shape[1] + 1), net.cond_pos_embedding(1)
            self.masks = [None, ops.array(np.arange(frames.shape[1] + 1) < 1)[None, None, None]]

        def logits(self, codes: Any, t: Any) -> Any:
            net, branches = self.network, self.source.text.shape[0]
            given = list(zip((self.reference, self.nothing), self.masks, strict=True))[:branches]
            identity = net.spk_identity_emb.weight
            speakers = [
                code.encoder.speaker_vector(
                    net.spk_encoder, identity, net.ref_embedder(frames), self.positions, mask
                )
                for frames, mask in given
            ]
            rows = ops.cat([row[:, None] for row in speakers], 0)
            whole = self.source
            self.source = whole._replace(text=ops.cat([rows + self.place, whole.text[:, 1:]], 1))
            found = super().logits(codes, t)
            self.source = whole
            return found

    class TimestepsEveryStep(step):
        """Step that runs both timestep networks."""

        def __init__(self, *given: Any):
            super().__init__(*given)
            table = timestep_table(self.settings.timesteps, self.network.config.timestep_size)
            self.features = ops.half(ops.array(table.astype(np.float32)))

        def logits(self, codes: Any, t: Any) -> Any:
            whole, features = self.source, self.features[t]
            made = [
                ops.float(ops.mlp(mlp, features))
                for mlp in (self.network.timestep_encoder_emb, self.network.timestep_decoder_emb)
            ]
            here = t * 0
            self.source = whole._replace(encoder_steps=made[0], decoder_steps=made[1])
            found = super().logits(codes, here)
            self.source = whole
            return found

    class TextEveryStep(step):
        """Step that looks up the text and adds positions."""

        def __init__(self, *given: Any):
            super().__init__(*given)
            self.text = ops.array(text[None].astype(np.int64))
            self.places = self.network.cond_pos_embedding(len(text) + 1)[1:]

        def logits(self, codes: Any, t: Any) -> Any:
            whole = self.source
            words = ops.float(self.network.text_embed(self.text)) + self.places
            words = ops.rows(words, whole.text.shape[0])
            self.source = whole._replace(text=ops.cat([whole.text[:, :1], words], 1))
            found = super().logits(codes, t)
            self.source = whole
            return found

    class EveryCell(step):
        """Step that also computes logits and posteriors of known cells."""

        def __init__(self, *given: Any):
            super().__init__(*given)
            self.first_frame = self.first_book = 0

    class OneHots(step):
        """Step with integer one-hot rows, and their logarithms and sums as arrays."""

        def __init__(self, *given: Any):
            super().__init__(*given)
            tables = schedule(self.settings.timesteps)
            rest = tables.log_1_min_alpha - np.float32(math.log(self.n_classes))
            self.single = ops.array(np.stack([tables.log_alpha, rest], axis=1))

        def log_posterior(self, logits: Any, codes: Any, t: Any) -> Any:
            at, settings = code.diffusion.at_timestep(self.table, t), self.settings
            mixture = code.diffusion.guided(logits, settings.guidance_w, settings.x_0_temp)
            below = code.diffusion.mixed(ops.log_softmax(mixture), at.keep, at.rest)
            held = ops.one_hot(codes[self.first_frame :, self.first_book :], self.n_classes)
            single = self.single[t][0]
            return ops.log_softmax(below + code.diffusion.mixed(held, single[0], single[1]))

    class EveryClass(step):
        """Step that draws two Gumbel numbers on the device for every class of every cell."""

        def __init__(self, network: Any, source: Any, cells: Cells, settings: Diffusion):
            changed = Diffusion(**{**vars(settings), "draws": "per class"})
            super().__init__(network, source, cells, changed)

        def compute(self, codes: Any, t: Any, numbers: Any) -> Any:
            shape = (2, *codes.shape, self.n_classes)
            return super().compute(codes, t, ops.gumbel(ops.uniform(shape)))

    class FirstLayerTwice(step):
        """Step that computes the decoder's first self-attention for both branches, whose inputs are equal."""

        def logits(self, codes: Any, t: Any) -> Any:
            net, source = self.network, self.source
            memory = ops.half(net.tfm.encoder(net.encoder_input(source, t), source.text_mask))
            frames = ops.rows(net.decoder_input(codes[None], source, t), source.text.shape[0])
            hidden = net.tfm.decoder(frames, memory, None, None)[:, self.first_frame :]
            return net.head(hidden, range(self.first_book, codes.shape[1]))

    return {
        "both branches in one call": TwoCalls,
        "speaker vectors computed once": SpeakersEveryStep,
        "timestep networks run once": TimestepsEveryStep,
        "text rows computed once": TextEveryStep,
        "logits of unknown cells only": EveryCell,
        "two values for a one-hot row": OneHots,
        "first self-attention shared": FirstLayerTwice,
        "two numbers a cell": EveryClass,
    }
