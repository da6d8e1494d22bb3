//! The switch's ends of the hosts' links: whole frames in and out, with the kernel's time of arrival.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// From <linux/if_packet.h>; the libc crate has not all of them.
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// `struct virtio_net_hdr`: how a frame larger than the link is to be cut, and its checksum.
const OFFLOAD_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
/// The largest frame that segmentation offload makes, with room for headers.
const MOST_FRAME_BYTES: usize = (64 << 10) + 256;
/// Frames that wait to be read. The kernel takes less where net.core.rmem_max says so, unless we are root.
const SOCKET_BYTES: libc::c_int = 64 << 20;
/// Headers of TCP over IPv4 with time stamps, for a frame that cannot be read.
const USUAL_HEADERS: usize = 66;

/// A frame with its offload header in front.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    /// When the kernel had it, on the system's clock, in nanoseconds.
    pub arrived_ns: u64,
}

impl Frame {
    fn ethernet(&self) -> &[u8] {
        &self.bytes[OFFLOAD_BYTES..]
    }

    /// The address that it is for; all ones, or the lowest bit of the first byte set: for everybody.
    pub fn target(&self) -> [u8; 6] {
        self.ethernet()[..6].try_into().expect("six bytes")
    }

    /// The address that it is from.
    pub fn source(&self) -> [u8; 6] {
        self.ethernet()[6..12].try_into().expect("six bytes")
    }

    /// Bytes of the IP packets that it is on a wire: the headers are repeated for every segment.
    pub fn wire_bytes(&self) -> u64 {
        let frame = self.ethernet();
        let whole = frame.len() - ETHERNET_BYTES;
        let segment = usize::from(u16::from_ne_bytes([self.bytes[4], self.bytes[5]]));
        if self.bytes[1] == 0 || segment == 0 {
            return whole as u64;
        }
        let headers = headers(frame).unwrap_or(USUAL_HEADERS);
        let payload = frame.len().saturating_sub(headers);
        let more = payload.div_ceil(segment).saturating_sub(1);
        (whole + more * (headers - ETHERNET_BYTES)) as u64
    }

    /// Bytes that it takes in memory.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A copy, for another host.
    pub fn copy(&self) -> Frame {
        Frame {
            bytes: self.bytes.clone(),
            arrived_ns: self.arrived_ns,
        }
    }
}

/// The length of the headers up to that of TCP.
fn headers(frame: &[u8]) -> Option<usize> {
    let network = match frame.get(12..14)? {
        [0x08, 0x00] => usize::from(frame.get(ETHERNET_BYTES)? & 0xf) * 4,
        [0x86, 0xdd] => 40,
        _ => return None,
    };
    let transport = ETHERNET_BYTES + network;
    Some(transport + usize::from(frame.get(transport + 12)? >> 4) * 4)
}

/// One end of a link.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    scratch: Vec<u8>,
}

impl Port {
    /// Opens the interface of this name in the calling thread's network.
    pub fn open(name: &str) -> io::Result<Port> {
        let named = CString::new(name)?;
        // SAFETY: the string ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(named.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let every = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed.
        let made = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(made) };
        let scratch = vec![0; OFFLOAD_BYTES + MOST_FRAME_BYTES];
        let port = Port { socket, scratch };
        port.set(libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
        // What we send ourselves is not for us.
        port.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        port.set(libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        port.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        if port
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BYTES)
            .is_err()
        {
            port.set(libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BYTES)?;
        }
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every;
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is as long as is said, and outlives the call.
        let bound = unsafe { libc::bind(port.handle(), (&raw const address).cast(), length) };
        if bound == 0 {
            Ok(port)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// What to poll.
    pub fn handle(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the value is as long as is said, and outlives the call.
        let done = unsafe {
            libc::setsockopt(
                self.handle(),
                level,
                option,
                (&raw const value).cast(),
                length,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The next frame; none: no more for now.
    pub fn receive(&mut self) -> io::Result<Option<Frame>> {
        let mut control = MaybeUninit::<[u64; 8]>::uninit();
        let mut part = libc::iovec {
            iov_base: self.scratch.as_mut_ptr().cast(),
            iov_len: self.scratch.len(),
        };
        // SAFETY: the structure is plain numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; 8]>() as _;
        // SAFETY: all buffers are as long as is said, and outlive the call.
        let count = unsafe { libc::recvmsg(self.handle(), &raw mut message, 0) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let bytes = self.scratch[..count as usize].to_vec();
        if bytes.len() < OFFLOAD_BYTES + ETHERNET_BYTES {
            return Ok(None);
        }
        Ok(Some(Frame {
            bytes,
            arrived_ns: time_of(&message),
        }))
    }

    /// Sends a frame to the host; false: the kernel did not take it, as when the link is down.
    pub fn send(&self, frame: &Frame) -> bool {
        let bytes = &frame.bytes;
        // SAFETY: the bytes are as many as is said, and outlive the call.
        let sent = unsafe { libc::send(self.handle(), bytes.as_ptr().cast(), bytes.len(), 0) };
        usize::try_from(sent).is_ok_and(|sent| sent == bytes.len())
    }
}

/// The time of arrival in a message's control part, zero when there is none.
fn time_of(message: &libc::msghdr) -> u64 {
    // SAFETY: the kernel has filled the control part, and the macros keep within its length.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !part.is_null() {
        // SAFETY: the pointer is that of a whole header within the control part.
        let header = unsafe { &*part };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: such a part holds a timespec, not always aligned.
            let time = unsafe {
                libc::CMSG_DATA(part)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            return time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        }
        // SAFETY: as above.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_repeat_their_headers_on_the_wire() {
        let mut bytes = vec![0; OFFLOAD_BYTES + 66 + 10 * 1448];
        let frame = &mut bytes[OFFLOAD_BYTES..];
        frame[12] = 0x08;
        frame[14] = 0x45;
        frame[14 + 20 + 12] = 8 << 4;
        let plain = Frame {
            bytes: bytes.clone(),
            arrived_ns: 0,
        };
        assert_eq!(plain.wire_bytes(), 52 + 10 * 1448);
        bytes[1] = 1;
        bytes[4..6].copy_from_slice(&1448_u16.to_ne_bytes());
        let large = Frame {
            bytes,
            arrived_ns: 0,
        };
        assert_eq!(large.wire_bytes(), 10 * 1500);
    }
}
