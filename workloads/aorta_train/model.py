"""The ranking transformer: dense and categorical features of each position in, one logit a position out.

Shape suffixes: B batch, T positions, F dense features, E width of a dense feature, S categorical features, M embedding
width, D model width, H heads, K head width, N width inside the MLP, R positions of all samples (B * T), I and O widths
of a linear layer.
"""
# ruff: noqa: N803, N806  (names end with their shape)

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from aorta_train.options import Model


class ChunkedLinear(nn.Linear):
    """A linear layer whose matrix product is launched in `num_chunks` pieces, each of some of the positions."""

    def __init__(self, in_features: int, out_features: int, num_chunks: int) -> None:
        super().__init__(in_features, out_features)
        self.num_chunks = num_chunks

    def forward(self, x_BTI: Tensor) -> Tensor:
        """Multiply; gradients of the weights add up over the pieces."""
        if self.num_chunks == 1:
            return super().forward(x_BTI)
        pieces = x_BTI.flatten(0, -2).tensor_split(self.num_chunks)
        y_RO = torch.cat([functional.linear(piece, self.weight, self.bias) for piece in pieces])
        return y_RO.view(*x_BTI.shape[:-1], self.out_features)


class Attention(nn.Module):
    """Self-attention over all positions of a sample."""

    def __init__(self, options: Model, num_chunks: int) -> None:
        super().__init__()
        self.num_heads = options.num_heads
        self.dropout = options.dropout
        self.query_key_value = ChunkedLinear(options.model_dim, 3 * options.model_dim, num_chunks)
        self.output = ChunkedLinear(options.model_dim, options.model_dim, num_chunks)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Mix the positions."""
        B, T, D = x_BTD.shape
        parts_BTD = self.query_key_value(x_BTD).split(D, dim=-1)  # their gradients are put together by one copy
        q_BHTK, k_BHTK, v_BHTK = (part.view(B, T, self.num_heads, -1).transpose(1, 2) for part in parts_BTD)
        dropout = self.dropout if self.training else 0.0
        mixed_BHTK = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, dropout_p=dropout)
        return self.output(mixed_BHTK.transpose(1, 2).reshape(B, T, D))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """One transformer layer, normalised before each half: the unit of sharding and of compilation."""

    def __init__(self, options: Model, num_chunks: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(options.model_dim)
        self.attention = Attention(options, num_chunks)
        self.mlp_norm = nn.LayerNorm(options.model_dim)
        self.mlp_in = ChunkedLinear(options.model_dim, options.mlp_hidden_dim, num_chunks)
        self.mlp_out = ChunkedLinear(options.mlp_hidden_dim, options.model_dim, num_chunks)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Attend, then think."""
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD)))
        h_BTN = functional.gelu(self.mlp_in(self.mlp_norm(x_BTD)))
        return x_BTD + self.dropout(self.mlp_out(h_BTN))  # type: ignore[no-any-return]


class RankingTransformer(nn.Module):
    """Projections of both kinds of features, added; transformer layers; a scorer of two layers."""

    def __init__(self, options: Model, num_chunks: int = 1) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(options.vocab_size, options.embedding_dim, mode="mean")
        self.dense_projection = nn.Linear(options.num_dense_features * options.dense_dim, options.model_dim)
        self.sparse_projection = nn.Linear(options.embedding_dim, options.model_dim)
        self.layers = nn.ModuleList(EncoderLayer(options, num_chunks) for _ in range(options.num_layers))
        self.norm = nn.LayerNorm(options.model_dim)
        self.scorer_in = nn.Linear(options.model_dim, options.model_dim)
        self.scorer_out = nn.Linear(options.model_dim, 1)

    def forward(self, dense_BTFE: Tensor, categorical_BTS: Tensor) -> Tensor:
        """Give a logit for every position, (B, T, 1): fully_shard warns of outputs that are views."""
        x_BTD = self.embed(dense_BTFE, categorical_BTS)
        for layer in self.layers:
            x_BTD = layer(x_BTD)
        return self.score(x_BTD)

    def embed(self, dense_BTFE: Tensor, categorical_BTS: Tensor) -> Tensor:
        """Project both kinds of features; the categorical ones of a position are averaged as they are looked up."""
        pooled_RM = self.embedding(categorical_BTS.flatten(0, 1))
        pooled_BTM = pooled_RM.view(*categorical_BTS.shape[:2], -1)
        return self.dense_projection(dense_BTFE.flatten(2)) + self.sparse_projection(pooled_BTM)  # type: ignore[no-any-return]

    def score(self, x_BTD: Tensor) -> Tensor:
        """Give a logit for every position, copied: what a linear layer gives is a view in some types."""
        h_BTD = functional.gelu(self.scorer_in(self.norm(x_BTD)))
        return self.scorer_out(h_BTD).clone()  # type: ignore[no-any-return]


def loss_of(logits_BT1: Tensor, target_BT: Tensor, importance_BT: Tensor) -> Tensor:
    """Give the mean over all positions of the binary cross-entropy, weighted by importance."""
    logits_BT = logits_BT1.squeeze(-1).float()
    return functional.binary_cross_entropy_with_logits(logits_BT, target_BT, weight=importance_BT)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """List the transformer layers, first to last."""
    return [module for module in model.modules() if isinstance(module, EncoderLayer)]


@torch.no_grad()
def initial_value(name: str, shape: Iterable[int], seed: int, device: torch.device) -> Tensor:
    """Make the first value of parameter `name`: the same on every rank, however the model is sharded."""
    size = torch.Size(shape)
    if name.endswith("bias"):
        return torch.zeros(size, device=device)
    if "norm" in name.split(".")[-2]:
        return torch.ones(size, device=device)
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    generator = torch.Generator(device=device).manual_seed(int.from_bytes(digest, "big"))
    scale = 1.0 if name.startswith("embedding.") else 1.0 / math.sqrt(size[-1])
    return torch.randn(size, generator=generator, device=device) * scale


@torch.no_grad()
def initialise(model: nn.Module, seed: int, prefix: str = "", recurse: bool = True) -> None:
    """Set every parameter of `model` to its first value; `prefix` is the place of `model` in the whole."""
    for name, parameter in model.named_parameters(recurse=recurse):
        source = torch.device("cpu") if parameter.device.type == "meta" else parameter.device
        parameter.copy_(initial_value(prefix + name, parameter.shape, seed, source))


def build(options: Model, seed: int, device: torch.device, num_chunks: int = 1) -> RankingTransformer:
    """Make the model on `device` (which may be meta, then without values) with its first values."""
    with torch.device("meta"):
        model = RankingTransformer(options, num_chunks)
    if device.type != "meta":
        model = model.to_empty(device=device)
        initialise(model, seed)
    return model


def flops_per_token(options: Model, sequence_length: int) -> int:
    """Count the floating-point operations of the matrix products for one position, forward and backward.

    Source: two operations a weight and position; attention adds 4 * T * D a layer. Backward is twice forward, once for
    the gradient of each factor; dense features have none.
    """
    D = options.model_dim
    per_layer = 2 * (4 * D * D + 2 * D * options.mlp_hidden_dim) + 4 * sequence_length * D
    dense_projection = 2 * D * options.num_dense_features * options.dense_dim
    other_projections = 2 * D * (options.embedding_dim + D + 1)
    return 3 * (options.num_layers * per_layer + other_projections) + 2 * dense_projection
