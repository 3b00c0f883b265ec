"""A real schema registry: kafkasniff asks it as its clients do, and copies all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from captures.record.distribution import SetupError
from captures.record.registry import RealRegistry, is_fetched, write_schemas
from tests.cli.console import kafkasniff
from tests.conftest import missing
from tests.values.test_recorded import LIBRDKAFKA

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.xdist_group("registry")]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """A registry with the schemas of `captures/librdkafka-registry`, which have the same ids again."""
    if not is_fetched():
        missing("the schema registry is not in the cache: python -m tests.integration")
    with RealRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def filled(registry: RealRegistry) -> RealRegistry:
    registry.register_again(LIBRDKAFKA.with_suffix(".registry"))
    return registry


def decode(capture: Path, place: str) -> str:
    found = kafkasniff("decode", "-q", "--format", "json", "--registry", place, str(capture))
    assert found.code == 0
    return found.text


def test_a_registry_and_its_copy_give_the_same(filled: RealRegistry, tmp_path: Path) -> None:
    by_folder = decode(LIBRDKAFKA, str(LIBRDKAFKA.with_suffix(".registry")))
    assert '"name":"shop.Parcel"' in by_folder
    assert decode(LIBRDKAFKA, filled.url) == by_folder
    copied = kafkasniff("schemas", "fetch", "--registry", filled.url, "-o", str(tmp_path / "copy"))
    assert (copied.code, copied.err) == (0, f"kafkasniff: 8 versions of schemas in {tmp_path / 'copy'}\n")
    assert decode(LIBRDKAFKA, str(tmp_path / "copy")) == by_folder
    # What another program reads from it is in these files.
    write_schemas(tmp_path / "other", filled.schemas())
    for file in (tmp_path / "other").rglob("*.json"):
        assert (tmp_path / "copy" / file.relative_to(tmp_path / "other")).is_file()


def test_ids_that_it_does_not_have(filled: RealRegistry) -> None:
    with pytest.raises(SetupError, match="404"):
        filled.answer("schemas/ids/302")
    schemas = LIBRDKAFKA.with_name("librdkafka-schemas.pcap")
    assert f"schema 302 is not in {filled.url}" in decode(schemas, f"{filled.url}/")


def test_a_url_that_is_not_the_api(registry: RealRegistry) -> None:
    found = decode(LIBRDKAFKA, registry.url.removesuffix("/apis/ccompat/v7"))
    assert found.count('"kind":"schema-registry"') == 1
    assert "is this the URL of a registry?" in found
