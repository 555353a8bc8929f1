"""Where somebody was: network addresses cut off, coordinates moved."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.transform.transformers.contract import (
    DrawOptions,
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
    ValueRefusedError,
)
from penstock.transform.transformers.drawing import fractions, joined
from penstock.transform.transformers.parsing import floats, number_texts

_DEGREE = 111_320.0
"""Metres that a degree of latitude has."""


class IpOptions(NoOptions):
    """How many bits stay."""

    keep_v4: int = Field(default=24, ge=0, le=32)
    keep_v6: int = Field(default=48, ge=0, le=128)


class TruncateIp(Transformer):
    """Addresses without their last bits."""

    options_model = IpOptions
    families = frozenset({"ip", "text"})
    is_keyed = False

    def check(self) -> None:
        if self.facts.type_name == "macaddr":
            raise UnfitError("a hardware address has no network; hash it")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        if self.options.keep_v4 == 24 and self.facts.type_name != "cidr":
            form = r"^((?:[0-9]{1,3}\.){3})[0-9]{1,3}$"
            plain = np.asarray(pc.match_substring_regex(values, form))
            made = joined(pc.replace_substring_regex(values, form, r"\1"), "0")
            if plain.all():
                return made
            others = values.filter(pa.array(~plain))
            return pc.replace_with_mask(made, pa.array(~plain), self._each(others))
        return self._each(values)

    def _each(self, values: pa.Array) -> pa.Array:
        encoded = values.dictionary_encode()
        made = pa.array(map(self._cut, encoded.dictionary.to_pylist()), pa.string())
        return made.take(encoded.indices)

    def _cut(self, text: str) -> str:
        try:
            address = ip_interface(text)
        except ValueError:
            raise ValueRefusedError("a value is no network address") from None
        kept = self.options.keep_v4 if address.version == 4 else self.options.keep_v6
        bits = min(kept, address.network.prefixlen)
        network = ip_network((str(address.ip), bits), strict=False)
        if self.facts.type_name == "cidr":
            return str(network)
        whole = address.network.prefixlen == address.max_prefixlen and "/" not in text
        return str(network.network_address) if whole else str(network)


class GeoOptions(DrawOptions):
    """At most ``metres`` away, in each direction."""

    metres: float = Field(default=1000, gt=0)


class GeoNoise(Transformer):
    """A latitude, a longitude, or a point (longitude, latitude) near the one that came."""

    options_model = GeoOptions
    families = frozenset({"numeric", "float", "point"})

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        most = self.options.metres / _DEGREE
        drawn = self.drawn(values)
        if self.facts.family != "point":
            return number_texts(
                floats(values) + (2 * fractions(drawn) - 1) * most, self.facts, None
            )
        parts = pc.split_pattern(pc.utf8_trim(values, "()"), ",")
        x, y = (floats(pc.list_element(parts, place)) for place in (0, 1))
        # A degree of longitude is shorter towards the poles.
        width = most / np.maximum(np.cos(np.radians(np.clip(y, -89, 89))), 0.02)
        x = x + (2 * fractions(drawn, 0) - 1) * width
        y = y + (2 * fractions(drawn, 1) - 1) * most
        texts = (pa.array(numbers).cast(pa.string()) for numbers in (x, y))
        return joined("(", next(texts), ",", next(texts), ")")
