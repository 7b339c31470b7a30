"""A histogram of how long answers took."""

BOUNDS: tuple[float, ...]

class AnswerTimes:
    def add(self, seconds: float, count: int = 1) -> None: ...
    def read(self) -> tuple[list[int], float]: ...
