//! Values with more than one way to write them, or with a closed set of words.

use std::fmt;

use bgp_proto::Asn;
use rib::limits::BEST_PATHS_MAX;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use toml::Spanned;

/// An AS number: `64512`, `"64512"`, or `"1.10"` (RFC 5396).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsNumber(pub Asn);

/// The AS of a neighbour: a number, `"internal"` (ours) or `"external"` (any but ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAsn {
    /// This one.
    Exactly(Asn),
    /// Ours.
    Internal,
    /// Any but ours.
    External,
}

/// A user of the host: a name, or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserKey(pub String);

impl<'de> Deserialize<'de> for UserKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct User;
        impl Visitor<'_> for User {
            type Value = UserKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a user name or a numeric user id")
            }

            fn visit_i64<E: Error>(self, id: i64) -> Result<UserKey, E> {
                match u32::try_from(id) {
                    // The greatest number is no user's.
                    Ok(id) if id != u32::MAX => Ok(UserKey(id.to_string())),
                    _ => Err(E::invalid_value(Unexpected::Signed(id), &self)),
                }
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<UserKey, E> {
                Ok(UserKey(name.to_owned()))
            }
        }
        deserializer.deserialize_any(User)
    }
}

/// What passes a neighbour, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Everything.
    Accept,
    /// Nothing.
    Deny,
}

/// The next hop in what we announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextHop {
    /// RFC 4271 §5.1.3: ours to external neighbours and in our own routes, kept otherwise.
    Auto,
    /// Always ours.
    #[serde(rename = "self")]
    Own,
    /// Kept wherever there is one.
    Keep,
}

/// Which side may send several paths to a prefix (RFC 7911), as seen from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMode {
    /// Neither: one path a prefix.
    Off,
    /// The neighbour; we receive.
    Receive,
    /// We.
    Send,
    /// Both.
    Both,
}

impl PathMode {
    /// Whether the neighbour may send us several.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    /// Whether we may send it several.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }
}

/// Which paths to a prefix are sent where several may be: one limit for all families, or a table
/// of families.
#[derive(Clone, Debug)]
pub enum PathsSent {
    /// In every family.
    Everywhere(PathLimit),
    /// In these families; in others one path a prefix.
    Families(Vec<(Spanned<String>, Spanned<PathLimit>)>),
}

/// `"all"`, `"equal-cost"`, or so many of the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLimit {
    /// All paths.
    All,
    /// Those as good as the best.
    EqualCost,
    /// The best, up to this many.
    Best(u64),
}

/// Hops that a neighbour may be away: `true` is 1 (RFC 5082).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hops {
    /// No check.
    Off,
    /// At most so many; 1 is a neighbour on the link.
    Most(u64),
}

/// Graceful restart: `true` is the default time (RFC 4724).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracefulRestart {
    /// Not offered.
    Off,
    /// Offered, with the default time.
    On,
    /// Offered, with this time in seconds.
    Seconds(u64),
}

/// A key that no log shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

impl<'de> Deserialize<'de> for AsNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AsnVisitor { words: false })
            .and_then(|asn| match asn {
                PeerAsn::Exactly(asn) => Ok(Self(asn)),
                PeerAsn::Internal | PeerAsn::External => Err(D::Error::custom("an AS number")),
            })
    }
}

impl<'de> Deserialize<'de> for PeerAsn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AsnVisitor { words: true })
    }
}

struct AsnVisitor {
    words: bool,
}

impl Visitor<'_> for AsnVisitor {
    type Value = PeerAsn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AS number from 1 to 4294967294, as 64512 or \"1.10\"")?;
        if self.words {
            f.write_str(", or \"internal\" or \"external\"")
        } else {
            Ok(())
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<PeerAsn, E> {
        let number = u32::try_from(value).ok().map(Asn);
        usable(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<PeerAsn, E> {
        let number = u32::try_from(value).ok().map(Asn);
        usable(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<PeerAsn, E> {
        match value {
            "internal" if self.words => Ok(PeerAsn::Internal),
            "external" if self.words => Ok(PeerAsn::External),
            _ => usable(value.parse().ok())
                .ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self)),
        }
    }
}

/// Numbers that no speaker may use: 0 (RFC 7607), AS_TRANS (RFC 6793) and the last (RFC 7300).
fn usable(asn: Option<Asn>) -> Option<PeerAsn> {
    asn.filter(|asn| asn.0 != 0 && *asn != Asn::TRANS && asn.0 != u32::MAX)
        .map(PeerAsn::Exactly)
}

impl<'de> Deserialize<'de> for PathsSent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PathsVisitor)
    }
}

struct PathsVisitor;

impl<'de> Visitor<'de> for PathsVisitor {
    type Value = PathsSent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LimitVisitor.expecting(f)?;
        f.write_str(", or a table of families with one of these each")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<PathsSent, E> {
        LimitVisitor.visit_i64(value).map(PathsSent::Everywhere)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<PathsSent, E> {
        LimitVisitor.visit_str(value).map(PathsSent::Everywhere)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PathsSent, A::Error> {
        let mut families = Vec::new();
        while let Some(entry) = map.next_entry()? {
            families.push(entry);
        }
        Ok(PathsSent::Families(families))
    }
}

impl<'de> Deserialize<'de> for PathLimit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(LimitVisitor)
    }
}

struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = PathLimit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"all\", \"equal-cost\", or how many of the best paths, from 1 to {BEST_PATHS_MAX}"
        )
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<PathLimit, E> {
        u64::try_from(value)
            .map(PathLimit::Best)
            .map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<PathLimit, E> {
        match value {
            "all" => Ok(PathLimit::All),
            "equal-cost" => Ok(PathLimit::EqualCost),
            _ => Err(E::invalid_value(Unexpected::Str(value), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Hops {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expecting = "true, false, or the hops the neighbour may be away";
        Ok(match from.deserialize_any(SwitchVisitor { expecting })? {
            Switch::Off => Self::Off,
            Switch::On => Self::Most(1),
            Switch::Number(hops) => Self::Most(hops),
        })
    }
}

impl<'de> Deserialize<'de> for GracefulRestart {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expecting = "true, false, or the restart time in seconds";
        Ok(match from.deserialize_any(SwitchVisitor { expecting })? {
            Switch::Off | Switch::Number(0) => Self::Off,
            Switch::On => Self::On,
            Switch::Number(seconds) => Self::Seconds(seconds),
        })
    }
}

enum Switch {
    Off,
    On,
    Number(u64),
}

struct SwitchVisitor {
    expecting: &'static str,
}

impl Visitor<'_> for SwitchVisitor {
    type Value = Switch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Switch, E> {
        Ok(if on { Switch::On } else { Switch::Off })
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Switch, E> {
        u64::try_from(value)
            .map(Switch::Number)
            .map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Switch, E> {
        Ok(Switch::Number(value))
    }
}
