from rocketc.derived._key_index import KeyIndex

class DispatchWorker:
    def __new__(cls, index: KeyIndex | None, whole: bool, background: bool = True) -> DispatchWorker: ...
