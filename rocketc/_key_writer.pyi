from rocketc._key_index import KeyIndex

class KeyWriter:
    def __new__(cls, index: KeyIndex) -> KeyWriter: ...
