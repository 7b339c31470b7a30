"""Whose requests are processed next, and for how long, while the loop has more to do than it can."""

class Flow:
    pass

class FairQueue:
    def __new__(cls) -> FairQueue: ...
    def __len__(self) -> int: ...
