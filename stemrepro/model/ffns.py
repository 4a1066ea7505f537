"""Every FFN by the name that recipes/arms.yaml uses."""

from torch import nn

from stemrepro.model.ffn import Blend, DownReplaced, GateReplaced, Stem, StemDagger, StemShuffled, SwiGLU, TokenOnly
from stemrepro.model.moe import HashMoE, TopkMoE
from stemrepro.model.rivals import InputAdd, NgramTable, PerLayerEmbedding, StemLowRank

FFNS: dict[str, type[nn.Module]] = {
    "dense": SwiGLU,
    "stem": Stem,
    "token-only": TokenOnly,
    "gate-replaced": GateReplaced,
    "down-replaced": DownReplaced,
    "stem-dagger": StemDagger,
    "blend": Blend,
    "stem-shuffled": StemShuffled,
    "stem-lowrank": StemLowRank,
    "ngram-table": NgramTable,
    "ple": PerLayerEmbedding,
    "input-add": InputAdd,
    "hash-moe": HashMoE,
    "topk-moe": TopkMoE,
}
