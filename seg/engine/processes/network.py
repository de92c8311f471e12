"""Names, addresses and interfaces: what several machines need to know of each other before they can meet."""

import array
import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path

from seg.errors import UserError

DEFAULT_PORT = 29500  # torch's and OpenMMLab's
_SIOCGIFCONF = 0x8912  # Linux: all IPv4 addresses of this machine, with their interfaces
_IFREQ_BYTES, _MOST_ADDRESSES = 40, 1024


def resolve(host: str) -> tuple[int, str]:
    """The address family and the address of a machine by name. Raises UserError for a name that leads nowhere."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(
            f'the machine of rank 0, {host!r}, cannot be found from {socket.gethostname()} ({error}); set MASTER_ADDR '
            'to its IP address'
        ) from None
    return family, str(address[0])


def address_towards(host: str) -> str:
    """Our own address on the way to a machine. Nothing is sent. Raises UserError where there is no way."""
    family, there = resolve(host)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((there, 9))
        except OSError as error:
            raise UserError(
                f'there is no way from {socket.gethostname()} to the machine of rank 0, {host} ({error.strerror})'
            ) from None
        return str(probe.getsockname()[0])


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition('%')[0]).is_loopback


def interface_of(address: str) -> str | None:
    """The network interface that has this address of ours: '10.0.0.7' -> 'eth0'. None where that cannot be told."""
    wanted = ipaddress.ip_address(address.partition('%')[0])
    if isinstance(wanted, ipaddress.IPv4Address) and wanted.is_loopback:
        return next((name for _, name in socket.if_nameindex() if name in ('lo', 'lo0')), None)
    if wanted.version == 6 and wanted.ipv4_mapped:
        wanted = wanted.ipv4_mapped
    found = _ipv4_interfaces() if wanted.version == 4 else _ipv6_interfaces(Path('/proc/net/if_inet6'))
    return found.get(wanted.compressed)


def _ipv4_interfaces() -> dict[str, str]:
    space = array.array('B', bytes(_IFREQ_BYTES * _MOST_ADDRESSES))
    request = struct.pack('iL', len(space), space.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            length = struct.unpack('iL', fcntl.ioctl(probe, _SIOCGIFCONF, request))[0]
        except OSError:  # not Linux
            return {}
    data = space.tobytes()
    records = [data[start : start + _IFREQ_BYTES] for start in range(0, length, _IFREQ_BYTES)]
    # 16 bytes of name ('eth0:1' is a label of eth0), then family, port, address
    return {socket.inet_ntoa(r[20:24]): r[:16].split(b'\0')[0].decode().partition(':')[0] for r in records}


def _ipv6_interfaces(table: Path) -> dict[str, str]:
    if not table.exists():
        return {}
    rows = [line.split() for line in table.read_text().splitlines()]
    return {ipaddress.IPv6Address(int(row[0], 16)).compressed: row[5] for row in rows}


def choose_gloo_interface(address: str) -> None:
    """Have gloo use the interface by which this machine reaches the others; what the user has set stays.

    Left to itself gloo looks up the host's own name, and takes the loopback where that leads nowhere or to 127.0.1.1:
    the machines would never meet.
    """
    if 'GLOO_SOCKET_IFNAME' in os.environ:
        return
    name = interface_of(address)
    if name is not None:
        os.environ['GLOO_SOCKET_IFNAME'] = name
    elif not is_loopback(address):
        print(
            f'no network interface of {socket.gethostname()} has the address {address} by which it reaches the other '
            'machines; if they do not find each other, set GLOO_SOCKET_IFNAME to the interface',
            flush=True,
        )
