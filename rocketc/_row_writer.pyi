from rocketc._key_index import KeyIndex

class RowWriter:
    def __new__(cls, index: KeyIndex | None, whole: bool) -> RowWriter: ...
