"""Wrong mappers and reducers."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a key goes to the same reducer in every mapper",
        "workers.py",
        "pieces[zlib.crc32(key.encode()) % parts]",
        "pieces[(zlib.crc32(key.encode()) + os.getpid()) % parts]",
    ),
    Mutation(
        "a mapper finds all words of a file",
        "text.py",
        "WORD.findall(read(path))",
        "WORD.findall(read(path))[1:]",
    ),
    Mutation(
        "values of a key from different chunks are reduced to one",
        "workers.py",
        "return {key: reduce_function(key, of_key) for",
        "return {key: reduce_function(key, of_key[:1]) for",
    ),
    Mutation(
        "a reducer keeps the values of all chunks",
        "workers.py",
        'self._folder / f"{chunk}.pickle"',
        'self._folder / f"{chunk % 4}.pickle"',
    ),
    Mutation(
        "the coordinator hands out all inputs",
        "workers.py",
        "enumerate(range(0, len(inputs), CHUNK))",
        "enumerate(range(0, len(inputs) - CHUNK, CHUNK))",
    ),
)
