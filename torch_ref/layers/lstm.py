"""Stacked long short-term memory, over whole sequences or piece by piece.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; gates in torch's order: input, forget, cell,
output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.limits import lstm_trusted

LSTMState = tuple[Tensor, Tensor]  # hidden and cell values after a step, (layers, B, H) each


class LSTM(nn.LSTM):
    """torch's own layers; computed cell by cell if the device's LSTM is not reliable (torch_ref.limits).

    (B, T, C) and a state, None at the start → (B, T, H) and the state after the last step. T is at least 1.
    """

    def forward(self, input: Tensor, hx: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        x = input.transpose(0, 1)  # (T, B, C)
        if lstm_trusted(x.device, self.num_layers):
            x, state = super().forward(x, hx)
        else:
            x, state = self._unrolled(x, hx)
        return x.transpose(0, 1), state

    def _unrolled(self, x: Tensor, state: LSTMState | None) -> tuple[Tensor, LSTMState]:
        start = x.new_zeros(self.num_layers, x.shape[1], self.hidden_size)
        hidden, cell = state or (start, start)
        ends = []
        for layer in range(self.num_layers):
            weight_ih, weight_hh, bias_ih, bias_hh = self.all_weights[layer]
            h, c, outputs = hidden[layer], cell[layer], []
            for gates in F.linear(x, weight_ih, bias_ih + bias_hh):  # the inputs of all steps in one product
                i, f, g, o = (gates + F.linear(h, weight_hh)).chunk(4, dim=-1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
                outputs.append(h)
            x = torch.stack(outputs)
            ends.append((h, c))
        return x, (torch.stack([h for h, _ in ends]), torch.stack([c for _, c in ends]))
