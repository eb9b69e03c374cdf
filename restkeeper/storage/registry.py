"""The schemas that the collections of a process have learned of, whatever the database is."""

from collections.abc import Callable, Iterable, Sequence

from restkeeper.storage.contract import MOST_SCHEMAS, Collection, StoredSchema


class Registry:
    """Lets each collection learn of the registered schemas before it gets an item of a new one.

    See `contract.Collection`.
    """

    def __init__(self, collections: Iterable[Collection]) -> None:
        self.collections = {each.name: each for each in collections if each.schema}
        self._learned: dict[str, set[str]] = {name: set() for name in self.collections}

    def learn_of(
        self, collection: str, fingerprints: Iterable[str], read_schemas: Callable[[], Sequence[StoredSchema]]
    ) -> None:
        """Let the collection learn of all registered schemas, if it has not learned of these.

        `read_schemas` returns them, see `contract.ItemStore.schemas`.
        """
        learned = self._learned.get(collection)
        if learned is None or learned.issuperset(fingerprints):
            return
        schemas = read_schemas()
        self.collections[collection].learn(schemas)
        if len(learned) > 2 * MOST_SCHEMAS:
            learned.clear()
        learned.update(fingerprints, [schema.fingerprint for schema in schemas])
