"""Environments that tests give to `--env gym_environments:<name>`: a good one, and each way of being bad."""
import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """Ten cells; right of the last one ends it. A little luck, drawn as Gymnasium wants it."""
    observation_space = spaces.Box(-1, 20, (2,), np.float32)
    action_space = spaces.Discrete(3, start=1)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = float(self.np_random.integers(0, 5)), 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.cell, self.time / 40], np.float32)

    def step(self, action):
        assert action in (1, 2, 3)
        self.time += 1
        self.cell = max(0.0, self.cell + action - 2 + self.np_random.random() * 0.1)
        return self.seen(), self.cell / 10, self.cell >= 10, self.time >= 40, {}


class Seven(Walk):
    """Seven steps of reward 1, whatever is done."""
    def step(self, action):
        seen, _, _, _, info = super().step(action)
        return seen, 1.0, self.time >= 7, False, info


class Drawn(Seven):
    """Draws itself: 5 x 4 pixels."""
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.full((4, 5, 3), self.time, np.uint8)


class Once(Walk):
    """Fails at the 201st decision of its process, `how` it is told to, once: the file `flag` remembers."""
    decisions = 0

    def __init__(self, flag, how, always=False):
        self.flag, self.how, self.always = flag, how, always

    def step(self, action):
        Once.decisions += 1
        if Once.decisions > 200 and (self.always or not os.path.exists(self.flag)):
            open(self.flag, "w").close()
            if self.how == "raise":
                raise ZeroDivisionError("the walk fell down")
            if self.how == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(1000)  # lint: allow(sleep) this is the hang itself
        return super().step(action)


class Whim(Walk):
    """Draws from where no seed reaches."""
    def step(self, action):
        self.cell += np.random.default_rng().random() * 0.01
        return super().step(action)


class Moody(Walk):
    """Repeats itself in one process, not in another: only a replay tells."""
    def step(self, action):
        self.cell += (os.getpid() % 97) * 1e-3
        return super().step(action)


class Endless(Walk):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}


class Pair(Walk):
    observation_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))})


class Odd(Walk):
    """Fails with words that are no text: escape codes, half a character, a name that steers."""
    def step(self, action):
        class Own(Exception):
            def __str__(self):
                return "the cause\x1b[2J\x07 \ud800 is here\u009b" + "x" * 100000
        raise Own()


class Huge(Walk):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, 1e300, *rest


class Dies(Walk):
    """At its first step, with a word on stderr."""
    def step(self, action):
        os.write(2, b"last words of a library\n")
        os.kill(os.getpid(), signal.SIGSEGV)


class Nan(Walk):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, float("nan"), *rest


def broken():
    raise RuntimeError("no engine")
