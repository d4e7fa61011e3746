"""Random numbers of distortions: a pure function of (seed, epoch, example), for a whole batch at once.

There is no state, so an example is distorted in the same way in any batch, order, process or resumed run.
The generator is Threefry-2x32 with 20 rounds (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
SC 2011): a block cipher that turns a key and a counter into 64 bits that pass every published test.
"""

import tensorflow as tf

Words = tuple[tf.Tensor, tf.Tensor]  # int64, 0 .. 2^32 - 1: every device adds, shifts and combines those
MASK = 0xFFFF_FFFF
PARITY = 0x1BD1_1BDA
ROUNDS = 20
FLIP_STREAM = 4  # of random numbers: apart from those of everything else
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(key: Words, counter: Words) -> Words:
    """Two random words of each key and counter; shapes broadcast."""
    # Once each: as numbers they would become new tensors in every round, which takes a third of the time.
    mask, width, *rotations = (tf.constant(each, tf.int64) for each in (MASK, 32, *ROTATIONS))
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    first, second = (counter[0] + key[0]) & mask, (counter[1] + key[1]) & mask
    for number in range(ROUNDS):
        first = (first + second) & mask
        shifted = tf.bitwise.left_shift(second, rotations[number % len(rotations)])
        second = (shifted ^ tf.bitwise.right_shift(shifted, width) ^ first) & mask
        if number % 4 == 3:
            turn = number // 4 + 1
            first = (first + keys[turn % 3]) & mask
            second = (second + keys[(turn + 1) % 3] + turn) & mask
    return first, second


def keys(seed: int | tf.Tensor, epoch: int | tf.Tensor, ordinals: tf.Tensor) -> tf.Tensor:
    """The random keys, int32 [N, 2], of examples with these ordinals, int64 [N], in an epoch."""
    ordinals = tf.cast(ordinals, tf.int64)
    key = (_word(seed), _word(epoch))
    low, high = ordinals & MASK, tf.bitwise.right_shift(ordinals, tf.constant(32, tf.int64))
    return tf.cast(tf.stack(threefry(key, (low, high)), axis=-1), tf.int32)


def alternating(keys: tf.Tensor, seed: int, epoch: tf.Tensor, ordinals: tf.Tensor) -> tf.Tensor:
    """Replace the last bit of keys by one that is random in the first epoch and alternates from then on."""
    first, second = tf.unstack(keys, axis=1)
    turn = _turn(seed, ordinals) ^ (tf.cast(epoch, tf.int32) & 1)
    return tf.stack([first, (second & ~1) | turn], axis=1)


def turned(keys: tf.Tensor) -> tf.Tensor:
    """Whether the flip that alternates mirrors the examples with these keys now, bool [N]."""
    return keys[:, 1] & 1 == 1


def _turn(seed: int, ordinals: tf.Tensor) -> tf.Tensor:
    """A random bit per example, int32 [N]: its value in all even epochs."""
    return Draws(keys(seed, 0, ordinals), 1, stream=FLIP_STREAM).integers(0, 2)


class Draws:
    """The random decisions for each image of a batch, by number; equal keys give equal decisions."""

    def __init__(self, keys: tf.Tensor, count: int, *, stream: int = 0) -> None:
        """Prepare draws 0 .. count - 1 from keys int32 [N, 2]; different streams are independent."""
        words = _word(keys)
        counters = tf.range((count + 1) // 2, dtype=tf.int64)[None]
        blocks = threefry((words[:, :1], words[:, 1:]), (counters, tf.fill(tf.shape(counters), _word(stream))))
        self._words = tf.reshape(tf.stack(blocks, axis=-1), (-1, 2 * counters.shape[1]))

    def uniform(self, draw: int | slice, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Float32 [N], or [N, draws] of a slice, evenly from low to high in steps of 2^-24 of the way."""
        # A float32 holds 24 bits; more would round up to 1.
        bits = tf.bitwise.right_shift(self._words[:, draw], tf.constant(8, tf.int64))
        return low + tf.cast(bits, tf.float32) * (2.0**-24 * (high - low))

    def integers(self, draw: int | slice, below: int | tf.Tensor) -> tf.Tensor:
        """Int32 [N], or [N, draws], evenly from 0 to below - 1, a number or one for each, at most 2^31."""
        product = self._words[:, draw] * tf.cast(below, tf.int64)
        return tf.cast(tf.bitwise.right_shift(product, tf.constant(32, tf.int64)), tf.int32)

    def coin(self, draw: int) -> tf.Tensor:
        """Bool [N], true with probability 1/2."""
        return self.integers(draw, 2) == 1


def _word(value: int | tf.Tensor) -> tf.Tensor:
    """Int64 0 .. 2^32 - 1 from any integer, of which the low 32 bits count."""
    whole = tf.constant(value, tf.int64) if isinstance(value, int) else tf.cast(value, tf.int64)
    return whole & MASK
