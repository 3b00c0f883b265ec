"""Which (API, version) pairs are defined, and which are proven.

Defined: a definition holds the version. Proven: bytes that this project did not make, decoded to values that it did not
make; `dissectors/proven.txt` lists them with their evidence, a line each: `NAME VERSION EVIDENCE`.
"""

from __future__ import annotations

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.data_files import data_folder, read_data
from kafkasniff.kafka.dissectors import api, api_by_name, api_keys

__all__ = ["PROVEN_FILE", "defined_pairs", "proven_pairs"]

PROVEN_FILE = "proven.txt"

Pair = tuple[int, int]


def defined_pairs() -> set[Pair]:
    """The (API key, version) pairs that the definitions hold."""
    return {(key, version) for key in api_keys() if (found := api(key)) is not None for version in found.versions}


def proven_pairs() -> dict[Pair, list[str]]:
    """The proven pairs, each with its evidence; none where the file does not exist.

    Raises DefinitionError for a line that does not name a defined pair, or gives no evidence.
    """
    if not (data_folder() / PROVEN_FILE).is_file():
        return {}
    path, lines = read_data(PROVEN_FILE)
    proven: dict[Pair, list[str]] = {}
    for number, line in lines:
        words = line.split(maxsplit=2)
        found = api_by_name(words[0])
        if len(words) < 3 or found is None or not words[1].isdecimal() or int(words[1]) not in found.versions:
            raise DefinitionError(f"{path}:{number}: a line is: NAME VERSION EVIDENCE, of a version that is defined")
        proven.setdefault((found.key, int(words[1])), []).append(words[2])
    return proven
