//! Interface names and patterns of them.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use crate::limits::INTERFACE_NAME_OCTETS_MAX;

/// The name of the interface of a locally originated route. It is small and copied; learned routes
/// have none and use no memory for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName {
    octets: [u8; INTERFACE_NAME_OCTETS_MAX],
    len: u8,
}

/// The name is empty, or longer than the kernel's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceNameError;

impl InterfaceName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let octets = self.octets.get(..usize::from(self.len));
        octets
            .and_then(|octets| core::str::from_utf8(octets).ok())
            .unwrap_or_default()
    }
}

impl FromStr for InterfaceName {
    type Err = InterfaceNameError;

    fn from_str(name: &str) -> Result<Self, InterfaceNameError> {
        let mut octets = [0; INTERFACE_NAME_OCTETS_MAX];
        let room = octets.get_mut(..name.len()).ok_or(InterfaceNameError)?;
        room.copy_from_slice(name.as_bytes());
        match u8::try_from(name.len()) {
            Ok(len @ 1..) => Ok(Self { octets, len }),
            _ => Err(InterfaceNameError),
        }
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for InterfaceNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an interface name has 1 to {INTERFACE_NAME_OCTETS_MAX} octets"
        )
    }
}

impl core::error::Error for InterfaceNameError {}

/// A pattern of interface names: `*` matches any characters, `?` one, any other character itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceGlob(Box<str>);

impl InterfaceGlob {
    /// Returns the pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether a name matches the pattern.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut name) = (self.0.as_bytes(), name.as_bytes());
        // The position to return to when the last star has matched too few characters.
        let mut star: Option<(&[u8], &[u8])> = None;
        loop {
            match (pattern, name) {
                ([b'*', rest @ ..], _) => {
                    star = Some((rest, name));
                    pattern = rest;
                    continue;
                }
                ([wanted, rest @ ..], [found, left @ ..]) if matches_octet(*wanted, *found) => {
                    (pattern, name) = (rest, left);
                    continue;
                }
                ([], []) => return true,
                _ => {}
            }
            match star {
                Some((rest, [_, left @ ..])) => {
                    star = Some((rest, left));
                    (pattern, name) = (rest, left);
                }
                _ => return false,
            }
        }
    }
}

const fn matches_octet(wanted: u8, found: u8) -> bool {
    wanted == b'?' || wanted == found
}

impl From<&str> for InterfaceGlob {
    fn from(pattern: &str) -> Self {
        Self(pattern.into())
    }
}

impl fmt::Display for InterfaceGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
