"""Codecs with a schema registry: `Avro`, `JsonSchema` and `Protobuf`, for `decode=` and `encode=` of connectors."""

from squall_io.kit.schemas.avro import Avro
from squall_io.kit.schemas.json_schema import JsonSchema
from squall_io.kit.schemas.protobuf import Protobuf
from squall_io.kit.schemas.registry import RegistryRefused

__all__ = ["Avro", "JsonSchema", "Protobuf", "RegistryRefused"]
