//! How the connections of one neighbor are secured.

use bgp_speaker::Password;

/// How the TCP connections of one neighbor are secured, the same on both sides: TCP-MD5 (RFC 2385) and
/// GTSM (RFC 5082).
///
/// ```
/// use bgp_io::Security;
///
/// let security = Security::new().with_password("secret").with_ttl_security(1);
/// assert!(!format!("{security:?}").contains("secret"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Security {
    /// The TCP-MD5 key, if any: 1 to 80 octets.
    pub password: Option<Password>,
    /// With GTSM, how far away the neighbor may be: 1 for a neighbor on the link.
    pub ttl_security_hops: Option<u8>,
}

impl Security {
    /// Returns connections without TCP-MD5 and GTSM.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            password: None,
            ttl_security_hops: None,
        }
    }

    /// Returns the same with this TCP-MD5 key.
    #[must_use]
    pub fn with_password(self, password: impl Into<Password>) -> Self {
        Self {
            password: Some(password.into()),
            ..self
        }
    }

    /// Returns the same with GTSM for a neighbor that is at most so many hops away.
    #[must_use]
    pub fn with_ttl_security(self, hops: u8) -> Self {
        Self {
            ttl_security_hops: Some(hops),
            ..self
        }
    }
}
