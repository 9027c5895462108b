"""Clocks that tests set."""


class SetClock:
    """Seconds that a test lets pass in `now`; each look at them takes `tick_s`."""

    def __init__(self, tick_s=0.0):
        self.now, self.tick_s = 0.0, tick_s

    def __call__(self):
        self.now += self.tick_s
        return self.now
