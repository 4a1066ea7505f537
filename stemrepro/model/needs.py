"""What the network and the memory of a model need of its shape; torch is imported with the first class."""

from typing import TYPE_CHECKING

from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.names import OWN_FILE, module_of

if TYPE_CHECKING:
    from stemrepro.model.ffn.base import FFN


def declared(name: str) -> "type[FFN]":
    """Return the class that says what a network needs; a user's needs nothing, and its file isn't executed for that.

    UserError: the name is unknown, or the file is missing.
    """
    from stemrepro.model.ffn.base import FFN, ffn_class

    return FFN if OWN_FILE.fullmatch(name) and module_of(name) else ffn_class(name)


def memory_needs(name: str) -> tuple[str, ...]:
    """Return the fields of the model that a memory needs; none without one; UserError where the name is unknown."""
    from stemrepro.model.memory.base import memory_class

    return memory_class(name).needs if name else ()


def check(config: ModelConfig) -> None:
    """Raise UserError where a model lacks what its FFN or its memory needs."""
    for field in memory_needs(config.memory):
        if not getattr(config, field):
            raise UserError(f"memory '{config.memory}' needs {field}, which is {getattr(config, field)}")
    needs, fewest = declared(config.ffn).needs, declared(config.ffn).fewest
    if "experts" in needs and not fewest <= config.top_k <= config.experts:
        range_ = f"{fewest} to {config.experts}"
        raise UserError(f"experts {config.experts}, top_k {config.top_k}: a token uses {range_} experts")
    if "slots" in needs and config.slots < 1:
        raise UserError(f"slots {config.slots}: '{config.ffn}' needs 1 or more rows per token")
    if "slots" in (*needs, *memory_needs(config.memory)) and config.top_k > config.slots:
        raise UserError(f"slots {config.slots}, top_k {config.top_k}: a token has fewer rows than it uses")
    if "rank" in needs and config.rank < 1:
        raise UserError(f"rank {config.rank}: '{config.ffn}' needs the width of its narrow table")
