//! The longest match of an address.

use super::*;
use crate::report::longest_match;

/// A speaker with a route of its own to each of these prefixes.
fn speaker_with(prefixes: &[&str]) -> Speaker {
    let mut speaker = speaker("asn = 64512\nrouter_id = \"10.0.0.1\"\n");
    for prefix in prefixes {
        let prefix: ipnet::IpNet = prefix.parse().expect("a prefix");
        let (family, net) = match prefix {
            ipnet::IpNet::V4(net) => (Family::IPV4_UNICAST, Net::V4(net.into())),
            ipnet::IpNet::V6(net) => (Family::IPV6_UNICAST, Net::V6(net.into())),
        };
        let local = Input::Local {
            family,
            net,
            attributes: Some(Attributes::default()),
            interface: None,
        };
        speaker.handle(NOW, local);
    }
    while speaker.run(NOW, Budget(1000)) == Progress::More {}
    speaker
}

#[test]
fn address_finds_the_longest_prefix_that_has_it() {
    let prefixes = [
        "10.0.0.0/8",
        "10.65.0.0/16",
        "10.65.0.0/26",
        "10.65.0.1/32",
        "fd00::/8",
        "fd00::/64",
        "fd00::1/128",
    ];
    let speaker = speaker_with(&prefixes);
    for (address, longest) in [
        ("10.65.0.1", Some("10.65.0.1/32")),
        ("10.65.0.2", Some("10.65.0.0/26")),
        ("10.65.0.64", Some("10.65.0.0/16")),
        ("10.66.0.1", Some("10.0.0.0/8")),
        ("11.0.0.1", None),
        ("fd00::1", Some("fd00::1/128")),
        ("fd00::2", Some("fd00::/64")),
        ("fd00:1::", Some("fd00::/8")),
        ("fe80::1", None),
    ] {
        for why in [false, true] {
            let found = longest_match(&speaker, address.parse().expect("an address"), why);
            let found = found.routes.first().map(|route| route.prefix.as_str());
            assert_eq!(found, longest, "{address}");
        }
    }
    let default = speaker_with(&["0.0.0.0/0", "::/0"]);
    for (address, longest) in [("192.0.2.1", "0.0.0.0/0"), ("2001:db8::", "::/0")] {
        let found = longest_match(&default, address.parse().expect("an address"), false);
        assert_eq!(found.routes[0].prefix, longest);
    }
}
