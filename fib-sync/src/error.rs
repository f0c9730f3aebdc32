//! Why the kernel refused a request.

use core::fmt;

/// Why the kernel refused a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpError {
    /// The error number of the operating system, positive.
    pub errno: i32,
    /// The kernel's error text (`NLMSGERR_ATTR_MSG`), if it sent one.
    pub text: Option<Box<str>>,
}

impl OpError {
    /// Returns an error with only its number.
    pub fn new(errno: i32) -> Self {
        Self { errno, text: None }
    }

    /// Returns the error's name (`ENETUNREACH`), for the numbers that occur with route requests.
    pub fn name(&self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(errno, ..)| *errno == self.errno)
            .map(|(_, name, _)| *name)
    }

    /// Returns whether a replace was not carried out because its key had changed.
    pub fn is_cancelled(&self) -> bool {
        self.errno == libc::ECANCELED
    }

    /// Returns whether a route of the same key already existed.
    pub fn is_exists(&self) -> bool {
        self.errno == libc::EEXIST
    }

    /// Returns whether the route to be replaced or deleted does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, libc::ESRCH | libc::ENOENT)
    }
}

/// Number, name and meaning of the errors that occur with route requests.
const NAMES: &[(i32, &str, &str)] = &[
    (
        libc::EPERM,
        "EPERM",
        "not permitted: CAP_NET_ADMIN is needed",
    ),
    (libc::EACCES, "EACCES", "access denied"),
    (libc::ENOENT, "ENOENT", "no such route"),
    (libc::ESRCH, "ESRCH", "no such route"),
    (
        libc::EEXIST,
        "EEXIST",
        "another route has the same table, prefix, metric and tos",
    ),
    (libc::EINVAL, "EINVAL", "the kernel finds the route invalid"),
    (libc::ENODEV, "ENODEV", "no such interface"),
    (libc::ENETDOWN, "ENETDOWN", "the interface is down"),
    (
        libc::ENETUNREACH,
        "ENETUNREACH",
        "the next hop is not on a directly connected network",
    ),
    (
        libc::EHOSTUNREACH,
        "EHOSTUNREACH",
        "the next hop is unreachable",
    ),
    (
        libc::ENOBUFS,
        "ENOBUFS",
        "the kernel's answer was lost: receive buffer full",
    ),
    (
        libc::ENOMEM,
        "ENOMEM",
        "the kernel is out of memory for routes",
    ),
    (libc::EBUSY, "EBUSY", "the kernel is busy"),
    (
        libc::EOPNOTSUPP,
        "EOPNOTSUPP",
        "not supported by this kernel",
    ),
    (
        libc::EAFNOSUPPORT,
        "EAFNOSUPPORT",
        "the address family is switched off",
    ),
];

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(errno, ..)| *errno == self.errno) {
            Some((_, name, meaning)) => write!(f, "{name}: {meaning}")?,
            None => write!(f, "{}", std::io::Error::from_raw_os_error(self.errno))?,
        }
        match &self.text {
            Some(text) => write!(f, " (kernel: {text})"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for OpError {}
