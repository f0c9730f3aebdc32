//! Networks in the form of the API: an address with a length, both without leading zeros.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::object::not;

/// Reads a network. Bits beyond its length are cleared, as Calico does.
pub(crate) fn network(value: &Value) -> Result<IpNet, String> {
    let parsed = value.as_str().and_then(parse);
    parsed.ok_or_else(|| not(value, "a network such as \"10.9.8.0/24\""))
}

/// Reads a text strictly: programs disagree about addresses with leading zeros and about IPv4
/// addresses within IPv6, so that none of their readings is safe.
fn parse(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let is_number = !length.is_empty() && length.bytes().all(|c| c.is_ascii_digit());
    if !is_number || (length.len() > 1 && length.starts_with('0')) || is_mapped(address) {
        return None;
    }
    let network = IpNet::new(address, length.parse().ok()?).ok()?;
    Some(network.trunc())
}

/// Returns whether an IPv6 address contains one of IPv4 (RFC 4291 §2.5.5.2).
pub(crate) fn is_mapped(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn networks_are_read_strictly_and_masked() {
        for (text, wanted) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.5/24", "10.0.0.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("fd65::7/128", "fd65::7/128"),
        ] {
            assert_eq!(network(&json!(text)).unwrap().to_string(), wanted);
        }
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "010.000.0.0/8",
            "10.0.0/8",
            "::ffff:10.0.0.0/104",
            "fe80::%eth0/64",
            "fd65::/129",
            " 10.0.0.0/8",
        ] {
            assert!(network(&json!(text)).is_err(), "{text}");
        }
        assert!(network(&json!(7)).is_err());
    }
}
