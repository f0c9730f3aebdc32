//! Diagnostic codes.

use core::fmt;

/// The reason for the last change of a session from Up or Init to another state (RFC 5880 §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Diagnostic(u8);

/// Declares the assigned codes with their texts.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)+) => {
        impl Diagnostic {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// All assigned codes.
            pub const ASSIGNED: &'static [Self] = &[$(Self::$name,)+];
        }

        impl fmt::Display for Diagnostic {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($text),)+
                    code => write!(f, "unassigned diagnostic {code}"),
                }
            }
        }
    };
}

codes! {
    /// No diagnostic.
    NONE = 0, "no diagnostic";
    /// No packet was received for the detection time.
    DETECTION_TIME_EXPIRED = 1, "control detection time expired";
    /// The echo function failed.
    ECHO_FAILED = 2, "echo function failed";
    /// The remote system signaled that the session is down.
    NEIGHBOR_SIGNALED_DOWN = 3, "neighbor signaled session down";
    /// The forwarding plane was reset.
    FORWARDING_PLANE_RESET = 4, "forwarding plane reset";
    /// The path is down.
    PATH_DOWN = 5, "path down";
    /// A path that continues this one is down in the forward direction (RFC 5880 §6.8.17).
    CONCATENATED_PATH_DOWN = 6, "concatenated path down";
    /// The operator disabled the session.
    ADMINISTRATIVELY_DOWN = 7, "administratively down";
    /// A path that continues this one is down in the reverse direction (RFC 5880 §6.8.17).
    REVERSE_CONCATENATED_PATH_DOWN = 8, "reverse concatenated path down";
    /// A packet arrived from a wrong source (RFC 6428 §5).
    MISCONNECTIVITY_DEFECT = 9, "misconnectivity defect";
}

impl Diagnostic {
    /// The greatest code: the field has five bits.
    pub const CODE_MAX: u8 = 31;

    /// Returns the diagnostic with this code; `None` above [`Diagnostic::CODE_MAX`].
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code <= Self::CODE_MAX {
            Some(Self(code))
        } else {
            None
        }
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn codes_are_five_bits_and_every_one_has_a_text() {
        for code in 0..=u8::MAX {
            let Some(diagnostic) = Diagnostic::from_code(code) else {
                assert!(code > Diagnostic::CODE_MAX);
                continue;
            };
            assert_eq!(diagnostic.code(), code);
            let assigned = Diagnostic::ASSIGNED.contains(&diagnostic);
            assert_eq!(diagnostic.to_string().starts_with("unassigned"), !assigned);
        }
    }
}
