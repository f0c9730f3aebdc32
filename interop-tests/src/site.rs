//! One host of a lab.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use netns_lab::Host;

/// A host on the switch: number `n` is 10.0.0.n and fd00::n.
#[derive(Debug)]
pub struct Site {
    /// Its number.
    pub number: u8,
    /// Its namespaces.
    pub host: Host,
}

impl Site {
    /// Returns the IPv4 address of host `number`.
    pub fn v4(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, number)
    }

    /// Writes a file into the host's directory.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn save(&self, name: &str, text: &str) -> PathBuf {
        let path = self.host.directory().join(name);
        std::fs::write(&path, text).expect("a lab's files can be written");
        path
    }

    /// Reads such a file back.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn load(&self, name: &str) -> String {
        let path = self.host.directory().join(name);
        std::fs::read_to_string(path).expect("a lab's files can be read")
    }

    /// Returns a TCP counter of the host, by the kernel's name for it.
    ///
    /// # Panics
    /// If the kernel has no such counter.
    pub fn tcp_counter(&self, name: &str) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/netstat");
        let text = self.host.run(read).expect("a thread").expect("counters");
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let names = lines.next().unwrap_or_default().split(' ');
        let values = lines.next().unwrap_or_default().split(' ');
        let found = names.zip(values).find(|(known, _)| *known == name);
        let value = found.and_then(|(_, value)| value.parse().ok());
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Returns the IPv6 address of host `number`.
    pub fn v6(number: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number))
    }
}
