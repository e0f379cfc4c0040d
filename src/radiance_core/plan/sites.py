"""Weight sites: each weight once for every distinct layout that its readers ask for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from radiance_abi.dtypes import dtype
from radiance_abi.kernels import Kernel, Layout
from radiance_core.graph.ir import GraphWeight
from radiance_core.resolve.stage import Resolution

SiteKey = tuple[str, str]
"""(the tensors and planes a weight comes from, "library.layout", empty for a plain one as it is).

Two declared weights of one source, such as tied embedding and head, share a site. A layout's name
counts within its library, since another may use it for other bytes.
"""


def site_key(weight: GraphWeight, library: str, layout: Layout | None) -> SiteKey:
    """Return the site that holds a weight in a layout of a library."""
    origin = "|".join((*weight.source.names, *weight.source.planes))
    return (origin, f"{library}.{layout.name}" if layout else "")


@dataclass(frozen=True, slots=True)
class Site:
    """One stored arrangement of one weight, and the kernel that makes it."""

    weight: GraphWeight
    layout: Layout | None
    library: str
    kernel: Kernel
    operand: int
    geometry: Mapping[str, int | float | str]

    @property
    def key(self) -> SiteKey:
        """Identify the site."""
        return site_key(self.weight, self.library, self.layout)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the stored tensor."""
        return self.layout.shape if self.layout else self.weight.shape

    @property
    def dtype(self) -> str:
        """Element type of the stored tensor."""
        return self.layout.dtype if self.layout else self.weight.encoding.codes.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the stored tensor."""
        return math.prod(self.shape) * dtype(self.dtype).bits // 8


def find_sites(resolution: Resolution) -> dict[SiteKey, Site]:
    """Return every site that the resolved bands read, in order of first use."""
    sites: dict[SiteKey, Site] = {}
    for resolved in resolution.nodes:
        schema = resolved.node.schema
        for band in resolved.bands:
            geometry = {**band.params, **band.axes}
            if schema.ranged is not None:
                geometry[schema.ranged] = band.upper
            for index, layout in band.layouts.items():
                weight = resolved.node.operands[index]
                assert isinstance(weight, GraphWeight), "layouts belong to weight operands"
                site = Site(weight, layout, band.library.name, band.kernel, index, geometry)
                sites.setdefault(site.key, site)
    return sites
