"""Sentences made from a seed: 8 to 10 words each, distributed as in a language (Zipf).

The benchmarks' input. The same seed gives the same sentences on every machine. It must not know how they are used.
"""

from __future__ import annotations

import random
from itertools import accumulate

__all__ = ["sentences"]

VOCABULARY = 10_000
"""Different words, about as many as a book has."""

CONSONANTS, VOWELS = "bdfghklmnprstvw", "aeiou"


def sentences(count: int, seed: int = 1) -> list[str]:
    """`count` sentences. The word of rank r is drawn with a probability in proportion to 1/r."""
    source = random.Random(seed)
    words = _vocabulary(source)
    weights = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    lengths = source.choices((8, 9, 10), k=count)
    drawn = iter(source.choices(words, cum_weights=weights, k=sum(lengths)))
    return [" ".join([next(drawn) for _ in range(length)]) for length in lengths]


def _vocabulary(source: random.Random) -> list[str]:
    """Different words that can be read aloud. Frequent ones are short, as they are in languages."""
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        syllables = 1 + (len(words) >= 50) + (len(words) >= 1_000)
        word = "".join(source.choice(CONSONANTS) + source.choice(VOWELS) for _ in range(syllables))
        words[word + source.choice(("", "n", "r", "s", "t"))] = None
    return list(words)
