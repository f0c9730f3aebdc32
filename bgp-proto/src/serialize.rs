//! Values as `serde` sees them, for JSON and the like (feature `serde`).
//!
//! A value with a text form is that text: prefixes, families, identifiers, communities, AS paths.
//! AS numbers and the protocol's enumerations are numbers. All of these can be read back.
//! Attributes, capabilities, NOTIFICATIONs and faults are objects for readers, with octets in hex;
//! they cannot be read back.

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

/// Writes values as what they print.
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

/// The attributes by the names that RFCs give them, those without a row as a list named `unknown`.
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

/// What a value prints.
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use serde_json::{from_value, json, to_value};

    use super::*;
    use crate::{Asn, FaultKind, Open};

    /// Checks that a value is this JSON and is read back.
    fn both_ways<T>(value: &T, json: serde_json::Value)
    where
        T: Serialize + for<'de> Deserialize<'de> + PartialEq + fmt::Debug,
    {
        assert_eq!(to_value(value).unwrap(), json);
        assert_eq!(from_value::<T>(json).unwrap(), *value);
    }

    #[test]
    fn values_are_read_back_from_their_text() {
        both_ways(
            &"10.65.0.0/26".parse::<Prefix>().unwrap(),
            json!("10.65.0.0/26"),
        );
        both_ways(
            &"fd65::/64".parse::<Ipv6Prefix>().unwrap(),
            json!("fd65::/64"),
        );
        both_ways(&Asn(64512), json!(64512));
        both_ways(
            &"192.0.2.1".parse::<RouterId>().unwrap(),
            json!("192.0.2.1"),
        );
        both_ways(&Family::IPV6_UNICAST, json!("ipv6-unicast"));
        both_ways(&FamilySet::UNICAST, json!(["ipv4-unicast", "ipv6-unicast"]));
        both_ways(&"64512:1".parse::<Community>().unwrap(), json!("64512:1"));
        both_ways(&LargeCommunity::new(1, 2, 3), json!("1:2:3"));
        both_ways(
            &ExtendedCommunity::route_target_as2(64512, 7),
            json!("rt:64512:7"),
        );
        both_ways(&AsPath::sequence(&[Asn(1), Asn(2)]), json!("1 2"));
        both_ways(&AttrCode::Med, json!(4));
    }

    #[test]
    fn bad_text_is_refused_with_its_reason() {
        let error = from_value::<Prefix>(json!("10.65.0.0")).unwrap_err();
        assert!(error.to_string().contains("write it as address/length"));
        let error = from_value::<FamilySet>(json!(["afi-9-safi-9"])).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("unsupported family afi-9-safi-9")
        );
    }

    #[test]
    fn attributes_are_objects_with_rfc_names() {
        let set = Attributes {
            as_path: AsPath::sequence(&[Asn(65001)]),
            med: Some(7),
            unknown: vec![RawAttribute::new(AttrCode(99), 0xc0, vec![1, 0xff])],
            ..Attributes::default()
        };
        let json = json!({
            "ORIGIN": "IGP",
            "AS_PATH": "65001",
            "MULTI_EXIT_DISC": 7,
            "unknown": [{"code": 99, "flags": "0xc0", "value": "01ff"}],
        });
        assert_eq!(to_value(&set).unwrap(), json);
    }

    #[test]
    fn messages_are_objects_for_readers() {
        let open = Open {
            asn: Asn(64512),
            hold_time: 90,
            id: "192.0.2.1".parse().unwrap(),
            capabilities: vec![Capability::RouteRefresh],
        };
        let json = to_value(&open).unwrap();
        assert_eq!(
            (&json["asn"], &json["id"]),
            (&json!(64512), &json!("192.0.2.1"))
        );
        assert_eq!(json["capabilities"][0]["name"], "route-refresh");
        let json = to_value(Notification::with_data(6, 2, vec![0].into())).unwrap();
        assert_eq!((&json["code"], &json["data"]), (&json!(6), &json!("00")));
        let json = to_value(Fault::new(FaultKind::Length, AttrCode::Med, 30)).unwrap();
        assert_eq!(json["attribute"], "MULTI_EXIT_DISC");
        assert_eq!(
            (&json["fault"], &json["at"]),
            (&json!("length"), &json!(30))
        );
    }
}
