"""Stacked long short-term memory, over whole sequences or piece by piece.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; gates in torch's order: input, forget, cell,
output. It uses no custom kernel and runs on every backend.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

LSTMState = tuple[mx.array, mx.array]  # hidden and cell values after a step, (layers, B, H) each


class LSTM(nn.Module):
    """Parameters under torch's names.

    (B, T, C) and a state, None at the start → (B, T, H) and the state after the last step. T is at least 1.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1):
        super().__init__()
        self.hidden_size, self.num_layers = hidden_size, num_layers
        for layer in range(num_layers):
            self[f"weight_ih_l{layer}"] = mx.zeros((4 * hidden_size, hidden_size if layer else input_size))
            self[f"weight_hh_l{layer}"] = mx.zeros((4 * hidden_size, hidden_size))
            self[f"bias_ih_l{layer}"] = mx.zeros((4 * hidden_size,))
            self[f"bias_hh_l{layer}"] = mx.zeros((4 * hidden_size,))

    def __call__(self, input: mx.array, hx: LSTMState | None = None) -> tuple[mx.array, LSTMState]:
        x = input.transpose(1, 0, 2)  # (T, B, C)
        start = mx.zeros((self.num_layers, x.shape[1], self.hidden_size), x.dtype)
        hidden, cell = hx or (start, start)
        ends = []
        for layer in range(self.num_layers):
            weight_hh = self[f"weight_hh_l{layer}"].T
            bias = self[f"bias_ih_l{layer}"] + self[f"bias_hh_l{layer}"]
            inputs = mx.addmm(bias, x, self[f"weight_ih_l{layer}"].T)  # every step's in one product
            h, c, outputs = hidden[layer], cell[layer], []
            for step in range(x.shape[0]):
                h, c = _step(inputs[step] + h @ weight_hh, c)
                outputs.append(h)
            x = mx.stack(outputs)
            ends.append((h, c))
        return x.transpose(1, 0, 2), (mx.stack([h for h, _ in ends]), mx.stack([c for _, c in ends]))


@mx.compile
def _step(gates: mx.array, c: mx.array) -> tuple[mx.array, mx.array]:
    """Compute one step; compiled into one kernel, as many small ones would take longer than the product."""
    i, f, g, o = mx.split(gates, 4, axis=-1)
    c = mx.sigmoid(f) * c + mx.sigmoid(i) * mx.tanh(g)
    return mx.sigmoid(o) * mx.tanh(c), c
