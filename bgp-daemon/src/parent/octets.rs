//! The octets of commands and answers, in order.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Octets that are still to be read. Every read returns `None` beyond the end.
#[derive(Debug)]
pub(super) struct Octets<'a>(pub(super) &'a [u8]);

impl<'a> Octets<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn octet(&mut self) -> Option<u8> {
        self.take::<1>().map(|[octet]| octet)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.octet()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Returns octets with their number before them.
    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.sized()?.to_vec()).ok()
    }

    pub(super) fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.octet()? {
            4 => IpAddr::from(self.take::<4>()?),
            6 => IpAddr::from(self.take::<16>()?),
            _ => return None,
        };
        let (port, scope) = (self.u16()?, self.u32()?);
        match ip {
            IpAddr::V4(ip) => (scope == 0).then(|| (ip, port).into()),
            IpAddr::V6(ip) => Some(SocketAddrV6::new(ip, port, 0, scope).into()),
        }
    }

    /// Returns a set: its length, and so many elements in increasing order.
    pub(super) fn set<T: Ord>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<BTreeSet<T>> {
        let count = self.u16()?;
        let mut set = BTreeSet::new();
        for _ in 0..count {
            let next = element(self)?;
            if set.last().is_some_and(|last| *last >= next) {
                return None;
            }
            set.insert(next);
        }
        Some(set)
    }

    /// Returns whether everything is read.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends octets with their number before them, as many as fit.
pub(super) fn put_sized(to: &mut Vec<u8>, octets: &[u8]) {
    let octets = octets.get(..usize::from(u16::MAX)).unwrap_or(octets);
    to.extend(count(octets.len()));
    to.extend(octets);
}

pub(super) fn put_text(to: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(usize::from(u16::MAX));
    put_sized(to, text.get(..end).unwrap_or_default().as_bytes());
}

pub(super) fn put_address(to: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            to.push(4);
            to.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            to.push(6);
            to.extend(ip.octets());
        }
    }
    to.extend(address.port().to_be_bytes());
    let scope = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    };
    to.extend(scope.to_be_bytes());
}

/// Appends a set of at most 65,535 elements.
pub(super) fn put_set<T: Copy>(
    to: &mut Vec<u8>,
    set: &BTreeSet<T>,
    mut put: impl FnMut(&mut Vec<u8>, T),
) {
    let most = usize::from(u16::MAX);
    to.extend(count(set.len().min(most)));
    for element in set.iter().take(most) {
        put(to, *element);
    }
}

fn count(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}
