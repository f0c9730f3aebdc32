//! The control packet of RFC 5880 §4.1.

use core::num::{NonZeroU8, NonZeroU32};

use crate::auth::AuthSection;
use crate::diagnostic::Diagnostic;
use crate::encoded::Encoded;
use crate::invalid::Invalid;
use crate::limits::{HEADER_OCTETS, VERSION};
use crate::secret::Secret;
use crate::table::State;

/// The number by which a system distinguishes its sessions: never zero (RFC 5880 §6.3).
pub type Discriminator = NonZeroU32;

/// A control packet. Values that RFC 5880 §6.8.6 rejects cannot be represented, except for a missing
/// `your_discriminator` in the states Init and Up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The sender's reason for its last change of state.
    pub diagnostic: Diagnostic,
    /// The state of the sender's session.
    pub state: State,
    /// The P bit: the sender requests a packet with the F bit.
    pub poll: bool,
    /// The F bit: the packet answers one with the P bit.
    pub is_final: bool,
    /// The C bit: BFD of the sender does not depend on its control plane.
    pub control_plane_independent: bool,
    /// The D bit: the sender wishes to receive no periodic packets.
    pub demand: bool,
    /// The lost packets after which the receiver may declare the session down.
    pub detect_multiplier: NonZeroU8,
    /// The sender's discriminator.
    pub my_discriminator: Discriminator,
    /// The receiver's discriminator; `None` if the sender has not received it.
    pub your_discriminator: Option<Discriminator>,
    /// The interval at which the sender wishes to transmit, in microseconds.
    pub desired_min_tx_us: u32,
    /// The shortest interval at which the sender can receive, in microseconds; 0 to receive no
    /// periodic packets.
    pub required_min_rx_us: u32,
    /// The shortest interval of echo packets that the sender supports, in microseconds; 0 for none.
    pub required_min_echo_rx_us: u32,
    /// The authentication section, if the A bit is set.
    pub auth: Option<AuthSection>,
}

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// The least octets of a packet with the A bit (RFC 5880 §6.8.6).
const AUTHENTICATED_OCTETS_MIN: u8 = 26;

impl Packet {
    /// Decodes the packet at the start of a UDP payload. Octets after its length are ignored.
    ///
    /// # Errors
    ///
    /// The first rule that the octets do not obey, in the order of RFC 5880 §6.8.6.
    pub fn decode(payload: &[u8]) -> Result<Self, Invalid> {
        let Some((header, _)) = payload.split_first_chunk::<HEADER_OCTETS>() else {
            return Err(Invalid::Truncated(payload.len()));
        };
        let [first, flags, multiplier, length, words @ ..] = *header;
        // RFC 5880 §6.8.6: each check in its order.
        if first >> 5 != VERSION {
            return Err(Invalid::Version(first >> 5));
        }
        let authenticated = flags & AUTHENTICATION != 0;
        let length_min = match authenticated {
            true => AUTHENTICATED_OCTETS_MIN,
            false => HEADER_OCTETS as u8,
        };
        if length < length_min {
            return Err(Invalid::LengthTooSmall(length));
        }
        let Some(packet) = payload.get(..usize::from(length)) else {
            return Err(Invalid::LengthTooGreat {
                length,
                payload: payload.len(),
            });
        };
        let detect_multiplier = NonZeroU8::new(multiplier).ok_or(Invalid::DetectMultiplierZero)?;
        if flags & MULTIPOINT != 0 {
            return Err(Invalid::Multipoint);
        }
        let [mine, yours, desired, required, echo] = words_of(&words);
        let my_discriminator = Discriminator::new(mine).ok_or(Invalid::MyDiscriminatorZero)?;
        let your_discriminator = Discriminator::new(yours);
        let state = State::from_bits(flags >> 6);
        if your_discriminator.is_none() && matches!(state, State::Init | State::Up) {
            return Err(Invalid::YourDiscriminatorZero(state));
        }
        let auth = match authenticated {
            true => Some(AuthSection::decode(
                packet.get(HEADER_OCTETS..).unwrap_or_default(),
            )?),
            false => None,
        };
        Ok(Self {
            diagnostic: Diagnostic::from_code(first & Diagnostic::CODE_MAX).unwrap_or_default(),
            state,
            poll: flags & POLL != 0,
            is_final: flags & FINAL != 0,
            control_plane_independent: flags & CONTROL_PLANE_INDEPENDENT != 0,
            demand: flags & DEMAND != 0,
            detect_multiplier,
            my_discriminator,
            your_discriminator,
            desired_min_tx_us: desired,
            required_min_rx_us: required,
            required_min_echo_rx_us: echo,
            auth,
        })
    }

    /// Encodes the packet, without an allocation.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = (self.state.bits() << 6)
            | bit(self.poll, POLL)
            | bit(self.is_final, FINAL)
            | bit(self.control_plane_independent, CONTROL_PLANE_INDEPENDENT)
            | bit(self.auth.is_some(), AUTHENTICATION)
            | bit(self.demand, DEMAND);
        let length = HEADER_OCTETS + self.auth.map_or(0, |section| section.length());
        let length = u8::try_from(length).unwrap_or(u8::MAX);
        let mut out = Encoded::default();
        out.push(&[
            VERSION << 5 | self.diagnostic.code(),
            flags,
            self.detect_multiplier.get(),
            length,
        ]);
        for word in [
            self.my_discriminator.get(),
            self.your_discriminator.map_or(0, Discriminator::get),
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ] {
            out.push(&word.to_be_bytes());
        }
        if let Some(section) = &self.auth {
            section.encode(&mut out);
        }
        out
    }

    /// Encodes the packet with the digest that `key` makes; a password stays.
    #[must_use]
    pub fn encode_signed(&self, key: &Secret) -> Encoded {
        let mut out = self.encode();
        if let Some(section) = &self.auth {
            section.sign(&mut out, key);
        }
        out
    }
}

/// Returns the five numbers after the first four octets.
fn words_of(octets: &[u8; HEADER_OCTETS - 4]) -> [u32; 5] {
    let mut words = [0; 5];
    let (chunks, _) = octets.as_chunks::<4>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u32::from_be_bytes(*chunk);
    }
    words
}

#[cfg(test)]
mod tests;
