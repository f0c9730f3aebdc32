//! The states of a session.

use core::fmt;

/// The states of RFC 5880 §6.2, in the order of their codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Disabled by the operator.
    AdminDown,
    /// No packets are received, or the remote system does not receive the local ones.
    #[default]
    Down,
    /// Packets are received; the remote system has not confirmed that it receives the local ones.
    Init,
    /// Both directions work.
    Up,
}

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    /// Returns the code of the field Sta.
    pub(crate) const fn bits(self) -> u8 {
        self as u8
    }

    /// Returns the state with the code in the lowest two bits.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_states_are_those_of_the_rfc() {
        for (code, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(state.bits()), code);
            assert_eq!(State::from_bits(state.bits()), state);
        }
    }
}
