"""Cloud disks and VM sizes: facts with sources, and their resolution into host profiles."""

from disklab.catalog.load import Catalog, DiskEntry, VmEntry, load_catalog
from disklab.catalog.price import NoPrice, Price, vm_price, volume_price
from disklab.catalog.processor import Speed, cpu_speed
from disklab.catalog.profile import Caching, VolumeProfile
from disklab.catalog.quantity import format_bytes, parse_bytes, parse_disks
from disklab.catalog.resolve import (
    AttachedDisks,
    HostRequest,
    Places,
    Resolution,
    VolumeRequest,
    find_vm,
    host_profile,
    resolve,
)
