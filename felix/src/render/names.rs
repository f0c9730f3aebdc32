//! Kernel names for objects of the datastore, which have names of any length.

use std::collections::BTreeSet;

use calico_model::{Selector, ServiceName};
use sha2::{Digest, Sha224, Sha256};

use super::ruleset::Family;
use crate::limits::{CHAIN_NAME_OCTETS_MAX, FLOW_NAME_OCTETS_MAX, SET_NAME_OCTETS_MAX};

/// Octets of a hash in a name: enough that names never collide.
const HASH_OCTETS: usize = 16;

/// The id of a set: of the endpoints of a selector or a service, computed as in Calico, or of the
/// named ports of a selector's endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(String);

impl SetId {
    /// Returns the id of a selector: selectors with the same meaning and order have the same id.
    pub fn of(selector: &Selector) -> Self {
        let hash = Sha224::digest(format!("s:{selector}"));
        Self(format!("s:{}", base64url(&hash)))
    }

    /// Returns the id of the ports with these names of a selector's endpoints.
    pub(super) fn of_ports(selector: &Selector, protocol: u8, names: &BTreeSet<String>) -> Self {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = format!("n:{protocol} {} {selector}", names.join(" "));
        Self(format!("n:{}", base64url(&Sha224::digest(text))))
    }

    /// Returns the id of a service's endpoints, computed as in Calico.
    pub(super) fn of_service(service: &ServiceName, has_ports: bool) -> Self {
        let kind = match has_ports {
            true => "svc",
            false => "svcnoport",
        };
        let hash = Sha224::digest(format!("{kind}:{service}"));
        Self(format!("{kind}:{}", base64url(&hash)))
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the kernel's set of its addresses of one family.
    pub fn set_name(&self, family: Family) -> String {
        let version = match family {
            Family::V4 => '4',
            Family::V6 => '6',
        };
        let name = format!("cali{version}0{}", self.0.replace(':', "-"));
        name.chars().take(SET_NAME_OCTETS_MAX).collect()
    }
}

/// Returns the name of a chain: `prefix` and `rest`, or a hash of `rest` if nftables would reject
/// it.
pub(super) fn chain_name(prefix: &str, rest: &str) -> String {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"/._-".contains(&c);
    let fits = prefix.len() + rest.len() <= CHAIN_NAME_OCTETS_MAX;
    match fits && rest.bytes().all(allowed) {
        true => format!("{prefix}{rest}"),
        false => format!("{prefix}_{}", short_hash(rest)),
    }
}

/// Returns a name as it is in a prefix: a hash if it is too long, or has characters that a prefix may
/// not contain.
pub(crate) fn token(name: &str) -> String {
    let is_plain = |c: u8| c.is_ascii_graphic() && c != b'"' && c != b'\\';
    let fits = name.len() <= FLOW_NAME_OCTETS_MAX && name.bytes().all(is_plain);
    match fits {
        true => name.to_owned(),
        false => format!("_{}", short_hash(name)),
    }
}

/// Returns a short hash of a text.
pub(super) fn short_hash(text: &str) -> String {
    let hash = Sha256::digest(text);
    base64url(hash.get(..HASH_OCTETS).unwrap_or_default())
}

/// Encodes as in RFC 4648 §5, without padding.
fn base64url(octets: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in octets.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..=group.len() {
            let letter = (bits >> (18 - 6 * i)) & 63;
            text.push(char::from(LETTERS[letter as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_calico() {
        for (selector, id) in [
            ("all()", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
            ("a == 'b'", "s:flMh0m0X_BowkAK_W3j3MgH8oQOsj3WxGDoXCQ"),
        ] {
            let found = SetId::of(&selector.parse().unwrap());
            assert_eq!(found.as_str(), id);
        }
        let service = ServiceName {
            namespace: "default".into(),
            name: "svc".into(),
        };
        for (has_ports, id) in [
            (true, "svc:Jhwii46PCMT5NlhWsUqZmv7al8TeHFbNQMhoVg"),
            (false, "svcnoport:T03S_6hogdrGKrNFBcbKTFsH_uKwDHEo8JddOg"),
        ] {
            assert_eq!(SetId::of_service(&service, has_ports).as_str(), id);
        }
        let id = SetId::of(&"all()".parse().unwrap());
        let name = id.set_name(Family::V4);
        assert_eq!(name, "cali40s-5y5I3VdRZfDU01O--xXAPx2");
        assert_eq!(name.len(), SET_NAME_OCTETS_MAX);
    }

    #[test]
    fn names_are_what_nftables_takes() {
        assert_eq!(chain_name("pi-", "np/ns/a.b-c"), "pi-np/ns/a.b-c");
        for bad in ["np/ns/a b", "np/ns/\"", "np/ns/ü", &"x".repeat(200)] {
            let name = chain_name("pi-", bad);
            assert!(name.starts_with("pi-_") && name.len() == 26, "{name}");
        }
    }
}
