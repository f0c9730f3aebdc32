//! Serialization with `serde`, for JSON for example (feature `serde`).
//!
//! A value with a text form is that text: prefixes, families, identifiers, communities, AS paths.
//! AS numbers and the protocol's enumerations are numbers. All of these can be deserialized.
//! Attributes, capabilities, NOTIFICATIONs and faults are objects for readers, with octets in hex;
//! they cannot be deserialized.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::attr::{
    Aggregator, AsPath, AttrCode, Attributes, NextHop, Origin, RawAttribute, Report,
};
use crate::community::{Community, ExtendedCommunity, LargeCommunity};
use crate::family::{Family, FamilySet};
use crate::fault::{Fault, Remedy};
use crate::id::{ClusterId, RouterId};
use crate::nlri::Net;
use crate::notification::Notification;
use crate::open::Capability;
use crate::params::PeerKind;
use crate::prefix::{Ipv4Prefix, Ipv6Prefix, Prefix};

/// Serializes values as their `Display` text.
macro_rules! write_text {
    ($($name:ty),*) => { $(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )* };
}

/// Reads values from their text form.
macro_rules! read_text {
    ($($name:ty),*) => { $(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text(PhantomData))
            }
        }
    )* };
}

write_text!(
    Aggregator,
    AsPath,
    ClusterId,
    Community,
    ExtendedCommunity,
    Family,
    Ipv4Prefix
);
write_text!(
    Ipv6Prefix,
    LargeCommunity,
    Net<'_>,
    NextHop,
    Origin,
    Prefix,
    Remedy,
    RouterId
);
read_text!(
    AsPath,
    ClusterId,
    Community,
    ExtendedCommunity,
    Family,
    Ipv4Prefix,
    Ipv6Prefix
);
read_text!(LargeCommunity, Prefix, RouterId);

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl Serialize for PeerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::External => "external",
            Self::Internal => "internal",
        })
    }
}

impl Serialize for FamilySet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for FamilySet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Families)
    }
}

struct Families;

impl<'de> Visitor<'de> for Families {
    type Value = FamilySet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of address families")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FamilySet, A::Error> {
        let mut families = FamilySet::EMPTY;
        while let Some(family) = list.next_element::<Family>()? {
            // A set cannot hold a family without a row.
            if family.row().is_none() {
                return Err(de::Error::custom(format_args!(
                    "unsupported family {family}"
                )));
            }
            families = families.with(family);
        }
        Ok(families)
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Flag => serializer.serialize_bool(true),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Fields(fields) => {
                serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

/// The attributes by their names in the RFCs, those without a row as a list named `unknown`.
impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (code, value) in self.reports() {
            map.serialize_entry(&Name(code), &value)?;
        }
        if !self.unknown.is_empty() {
            map.serialize_entry("unknown", &self.unknown)?;
        }
        map.end()
    }
}

/// A type of attribute by its name.
struct Name(AttrCode);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for RawAttribute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("RawAttribute", 4)?;
        object.serialize_field("code", &self.code)?;
        match self.code.name() {
            Some(name) => object.serialize_field("name", name)?,
            None => object.skip_field("name")?,
        }
        object.serialize_field("flags", &Hex(&[self.flags], "0x"))?;
        object.serialize_field("value", &Hex(&self.value, ""))?;
        object.end()
    }
}

impl Serialize for Capability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let code = self.code();
        let mut object = serializer.serialize_struct("Capability", 3)?;
        object.serialize_field("code", &code)?;
        match code.name() {
            Some(name) => object.serialize_field("name", name)?,
            None => object.skip_field("name")?,
        }
        object.serialize_field("text", &Shown(self))?;
        object.end()
    }
}

impl Serialize for Notification {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Notification", 4)?;
        object.serialize_field("code", &self.code)?;
        object.serialize_field("subcode", &self.subcode)?;
        object.serialize_field("text", &Shown(self))?;
        object.serialize_field("data", &Hex(&self.data, ""))?;
        object.end()
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Fault", 5)?;
        object.serialize_field("at", &self.at)?;
        match self.attr {
            AttrCode::None => object.skip_field("attribute")?,
            code => object.serialize_field("attribute", &Name(code))?,
        }
        object.serialize_field("fault", self.kind.slug())?;
        object.serialize_field("text", self.kind.text())?;
        object.serialize_field("remedy", &self.remedy())?;
        object.end()
    }
}

/// The `Display` text of a value.
struct Shown<'a, T>(&'a T);

impl<T: fmt::Display> Serialize for Shown<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

/// Octets as hex digits, after a prefix.
struct Hex<'a>(&'a [u8], &'static str);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
