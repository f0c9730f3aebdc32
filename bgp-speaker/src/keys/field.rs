//! Conversion between fields of a configuration and values of keys.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};
use core::net::IpAddr;

use bgp_fsm::{GracefulRestartConfig, PeerAs};
use bgp_proto::{Asn, ClusterId, Family, FamilySet, Prefix, RouterId};
use rib::{NextHopMode, OriginMode, Policy, SendPaths};

use super::{
    read::{by_family, field, set_of},
    value::Value,
};
use crate::config::{
    Bfd, BfdAuth, BfdGraceful, BfdMode, LimitAction, Password, PrefixLimit, PrefixLimitOut,
    PrefixLimits, PrefixLimitsOut,
};

/// The type of a field.
pub(super) trait Field: Sized {
    /// Returns the field of a parsed value; `None` if it is of another type, or has no written
    /// form.
    fn of(value: &Value) -> Option<Self>;

    /// Returns the value; `None` if the key is absent.
    fn value(&self) -> Option<Value>;
}

/// Implements [`Field`] for types with a text form: a text, a word or an address.
macro_rules! texts {
    ($($type:ty: $of:expr, $text:expr;)*) => {$(
        impl Field for $type {
            fn of(value: &Value) -> Option<Self> {
                let of: fn(&str) -> Option<Self> = $of;
                of(value.text()?)
            }

            fn value(&self) -> Option<Value> {
                let text: fn(&Self) -> String = $text;
                Some(Value::Text(text(self)))
            }
        }
    )*};
}

texts! {
    String: |text| Some(text.to_string()), Self::clone;
    Password: |text| Some(text.into()), |password| password.to_string();
    IpAddr: |text| text.parse().ok(), Self::to_string;
    ClusterId: |text| text.parse().ok(), Self::to_string;
    RouterId: |text| text.parse().ok(), Self::to_string;
    Prefix: |text| text.parse().ok(), Self::to_string;
    NextHopMode: next_hop_mode, |mode| match mode {
        Self::Auto => "auto",
        Self::Own => "self",
        Self::Keep => "keep",
    }.into();
    BfdAuth: Self::named, |auth| auth.word().into();
    OriginMode: Self::named, |mode| mode.name().into();
    Policy: policy, |policy| match policy {
        Self::AcceptAll => "accept".into(),
        Self::RejectAll => "deny".into(),
        Self::Rules(rules) => rules.name.clone(),
    };
}

fn next_hop_mode(word: &str) -> Option<NextHopMode> {
    match word {
        "auto" => Some(NextHopMode::Auto),
        "self" => Some(NextHopMode::Own),
        "keep" => Some(NextHopMode::Keep),
        _ => None,
    }
}

fn policy(word: &str) -> Option<Policy> {
    match word {
        "accept" => Some(Policy::AcceptAll),
        "deny" => Some(Policy::RejectAll),
        _ => None,
    }
}

/// Implements [`Field`] for numeric types.
macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Field for $type {
            fn of(value: &Value) -> Option<Self> {
                match value {
                    Value::Number(number) => Self::try_from(*number).ok(),
                    _ => None,
                }
            }

            fn value(&self) -> Option<Value> {
                Some(u32::from(*self).into())
            }
        }
    )*};
}

numbers! { u8 u16 u32 }

impl Field for bool {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    fn value(&self) -> Option<Value> {
        Some((*self).into())
    }
}

impl<T: Field> Field for Option<T> {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Flag(false) => Some(None),
            value => T::of(value).map(Some),
        }
    }

    fn value(&self) -> Option<Value> {
        self.as_ref()?.value()
    }
}

impl Field for PeerAs {
    fn of(value: &Value) -> Option<Self> {
        match value.text() {
            Some("internal") => Some(Self::Internal),
            Some("external") => Some(Self::External),
            _ => u32::of(value).map(|asn| Self::Exactly(Asn(asn))),
        }
    }

    fn value(&self) -> Option<Value> {
        Some(match self {
            Self::Exactly(asn) => asn.0.into(),
            Self::Internal => "internal".into(),
            Self::External => "external".into(),
            Self::Any => "any".into(),
        })
    }
}

impl Field for FamilySet {
    fn of(value: &Value) -> Option<Self> {
        Some(set_of(value))
    }

    fn value(&self) -> Option<Value> {
        Some((*self).into())
    }
}

impl Field for PrefixLimits {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(_) => u32::of(value).map(Self::of_all),
            value => by_family(value, prefix_limit).map(Self::of),
        }
    }

    fn value(&self) -> Option<Value> {
        let limits = self.by_family().iter();
        let limits = limits.map(|(family, limit)| limit_value(*family, limit));
        match self.by_family().is_empty() {
            true if self.is_default() => None,
            true => Some(self.max().into()),
            false => Some(Value::list(limits)),
        }
    }
}

impl Field for PrefixLimitsOut {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(_) => u32::of(value).map(Self::of_all),
            value => by_family(value, prefix_limit_out).map(Self::of),
        }
    }

    fn value(&self) -> Option<Value> {
        let limits = self.by_family().iter().map(|(family, limit)| {
            Value::table([
                ("families", FamilySet::from(*family).into()),
                ("max", limit.max.into()),
                ("warn", u32::from(limit.warn_percent).into()),
            ])
        });
        Some(match self.by_family().is_empty() {
            true => self.max().into(),
            false => Value::list(limits),
        })
    }
}

impl Field for BTreeMap<Family, u32> {
    fn of(value: &Value) -> Option<Self> {
        by_family(value, u32::of)
    }

    fn value(&self) -> Option<Value> {
        let entries = self
            .iter()
            .map(|(family, number)| (family, (*number).into()));
        (!self.is_empty()).then(|| Value::table(entries))
    }
}

fn prefix_limit_out(value: &Value) -> Option<PrefixLimitOut> {
    Some(PrefixLimitOut {
        max: u32::of(entry(value, "max")?)?,
        warn_percent: u8::of(entry(value, "warn")?)?,
    })
}

/// Returns the value of a key in a parsed table.
fn entry<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Table(keys) = value else {
        return None;
    };
    let found = keys.iter().find(|(key, _)| key.value == name);
    found.map(|(_, value)| &value.value)
}

fn prefix_limit(value: &Value) -> Option<PrefixLimit> {
    let field = |name: &str| entry(value, name);
    Some(PrefixLimit {
        max: u32::of(field("max")?)?,
        warn_percent: u8::of(field("warn")?)?,
        action: match field("action")?.text()? {
            "warn" => LimitAction::Warn,
            "restart" => LimitAction::Restart {
                after_s: u32::of(field("restart_after")?)?,
            },
            _ => LimitAction::Drop,
        },
    })
}

fn limit_value(family: Family, limit: &PrefixLimit) -> Value {
    let mut keys = Vec::from([
        ("families", FamilySet::from(family).into()),
        ("max", limit.max.into()),
        ("warn", u32::from(limit.warn_percent).into()),
    ]);
    match limit.action {
        LimitAction::Warn => keys.push(("action", "warn".into())),
        LimitAction::Drop => keys.push(("action", "drop".into())),
        LimitAction::Restart { after_s } => {
            keys.extend([
                ("action", "restart".into()),
                ("restart_after", after_s.into()),
            ]);
        }
    }
    Value::table(keys)
}

/// Converts a word or a number to the paths to send.
pub(super) fn send_paths(value: &Value) -> Option<SendPaths> {
    match value.text() {
        Some("all") => Some(SendPaths::All),
        Some("equal-cost") => Some(SendPaths::EqualCost),
        _ => u8::of(value).map(SendPaths::Best),
    }
}

/// Converts the paths to send to a word or a number.
pub(super) fn send_paths_value(paths: SendPaths) -> Value {
    match paths {
        SendPaths::All => "all".into(),
        SendPaths::EqualCost => "equal-cost".into(),
        SendPaths::Best(most) => u32::from(most).into(),
    }
}

impl Field for Bfd {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Flag(true) => Some(Self::default()),
            Value::Table(keys) => {
                let at = |name| field(keys, name).map(|given| &given.value);
                let mut bfd = Self::default();
                if let Some(interval_ms) = at("interval_ms") {
                    bfd.interval_ms = u32::of(interval_ms)?;
                }
                if let Some(multiplier) = at("multiplier") {
                    bfd.multiplier = u8::of(multiplier)?;
                }
                if let Some(mode) = at("mode") {
                    bfd.mode = bfd_mode(mode.text()?)?;
                }
                Some(bfd)
            }
            _ => None,
        }
    }

    fn value(&self) -> Option<Value> {
        Some(match *self == Self::default() {
            true => true.into(),
            false => Value::table([
                ("interval_ms", self.interval_ms.into()),
                ("multiplier", u32::from(self.multiplier).into()),
                ("mode", bfd_mode_name(self.mode).into()),
            ]),
        })
    }
}

fn bfd_mode(name: &str) -> Option<BfdMode> {
    match name {
        "auto" => Some(BfdMode::Auto),
        "single-hop" => Some(BfdMode::SingleHop),
        "multihop" => Some(BfdMode::Multihop),
        _ => None,
    }
}

const fn bfd_mode_name(mode: BfdMode) -> &'static str {
    match mode {
        BfdMode::Auto => "auto",
        BfdMode::SingleHop => "single-hop",
        BfdMode::Multihop => "multihop",
    }
}

impl Field for BfdGraceful {
    fn of(value: &Value) -> Option<Self> {
        match value.text()? {
            "auto" => Some(Self::Auto),
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    fn value(&self) -> Option<Value> {
        Some(match self {
            Self::Auto => "auto".into(),
            Self::Always => "always".into(),
            Self::Never => "never".into(),
        })
    }
}

/// Implements [`Field`] for types without a written form.
macro_rules! in_code {
    ($($type:ty: $value:expr;)*) => {$(
        impl Field for $type {
            fn of(_: &Value) -> Option<Self> {
                None
            }

            fn value(&self) -> Option<Value> {
                let value: fn(&Self) -> Value = $value;
                Some(value(self))
            }
        }
    )*};
}

in_code! {
    Asn: |asn| asn.0.into();
    (u16, u16): |(least, most)| Value::list([u32::from(*least), u32::from(*most)]);
    GracefulRestartConfig: |restart| u32::from(restart.time_s).into();
}
