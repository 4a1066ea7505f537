"""Books of a row cache: which rows of host tables the device slots hold, the same for all tables of a model.

The same token ids are requested of every table, so one decision serves them all.
"""

import numpy as np


class RowCache:
    """Slots for the rows of token ids; ValueError: there is no slot.

    A request is a set of distinct ids. Those held are hits. The rest take empty slots, then slots of held ids that are
    not in the request: of those with the fewest requests since the id came in, ties to the longest unused. What finds
    no slot is fetched and not kept.

    Args:
        slots: rows that it holds at most.
        vocab: ids are 0 ... vocab - 1.

    Attributes:
        taken: by offloaded tables, whose rows the entries are of.
    """

    def __init__(self, slots: int, vocab: int) -> None:
        if slots < 1:
            raise ValueError(f"a cache needs one slot or more, not {slots}")
        self.slot_of = np.full(vocab, -1)
        self.held = np.full(slots, -1)
        self.uses, self.last = np.zeros(slots, np.int64), np.full(slots, -1)
        self.clock, self.taken = 0, False

    def request(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take in distinct ids [n].

        Returns:
            Their slots [n], -1 for an id without one, and which had to be fetched, bool [n].
        """
        slots = self.slot_of[ids]
        missed, times = slots < 0, self.clock + np.arange(len(ids))
        hit = slots[~missed]
        self.uses[hit] += 1
        self.last[hit] = times[~missed]
        self.clock += len(ids)
        free = np.ones(len(self.held), bool)
        free[hit] = False
        places, comers = np.flatnonzero(free), np.flatnonzero(missed)
        victims = places[np.lexsort((self.last[places], self.uses[places]))][: len(comers)]
        comers = comers[: len(victims)]
        evicted = self.held[victims]
        self.slot_of[evicted[evicted >= 0]] = -1
        self.held[victims], self.slot_of[ids[comers]] = ids[comers], victims
        self.uses[victims], self.last[victims] = 1, times[comers]
        slots[comers] = victims
        return slots, missed

    def forget(self, ids: np.ndarray) -> None:
        """Empty the slots of ids whose rows never arrived."""
        slots = self.slot_of[ids]
        slots = slots[slots >= 0]
        self.slot_of[self.held[slots]] = -1
        self.held[slots], self.uses[slots], self.last[slots] = -1, 0, -1
