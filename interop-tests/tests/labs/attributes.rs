//! Attributes that few routes have, through Cambric's reflector: octet for octet as another
//! project's encoder wrote them, without the Partial flag, and decoded by other implementations.
//!
//! GoBGP 3.10 originates AIGP, PMSI_TUNNEL and IPV6_EXTENDED_COMMUNITIES; FRR 8.4 ONLY_TO_CUSTOMER,
//! PREFIX_SID and TUNNEL_ENCAPSULATION. Values that neither has a command for come from a scripted
//! peer, and GoBGP has to read in them what was meant.

use std::net::Ipv4Addr;

use bgp_proto::{AttrCode as Code, Family};
use interop_tests::{
    Ground, Kind, Setup, Site, Speaker, in_ground,
    received::{Attributes, Received},
    sender::{Opening, Sender},
};
use serde_json::Value;
use testkit::{OPTIONAL, OPTIONAL_TRANSITIVE, Update};

const ASN: u32 = 64512;
const OTHER_ASN: u32 = 65002;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const NAMES: &[&str] = &["ipv4-unicast", "l2vpn-evpn", "ipv6-flowspec"];
const FAMILIES: &[Family] = &[
    Family::IPV4_UNICAST,
    Family::L2VPN_EVPN,
    Family::IPV6_FLOWSPEC,
];

/// A scripted peer on host `number` with a session to host `to`.
async fn scripted(ground: &Ground, number: u8, to: u8) -> Sender {
    scripted_with(ground, number, to, FAMILIES).await
}

async fn scripted_with(ground: &Ground, number: u8, to: u8, families: &[Family]) -> Sender {
    let site = ground.site(number).await.expect("a host");
    let opening = Opening {
        asn: ASN,
        id: Site::v4(number),
        hold_time: 600,
        families,
    };
    Sender::insist(&site, Site::v4(to), &opening).await
}

/// Returns the attributes of the only route that has an attribute of this type.
fn with(sender: &Sender, code: Code) -> Option<&Attributes> {
    let mut routes = sender.received.routes.values();
    routes.find(|attributes| attributes.contains_key(&code.0))
}

/// Returns a reflector on host 1 between its clients: host 2, which runs `source`, and the scripted
/// peer on host 3.
fn reflector(source_asn: u32) -> Setup {
    let setup = Setup::fabric().neighbor(Site::v4(3), ASN).carrying(NAMES);
    let setup = setup.reflecting(CLUSTER);
    let setup = setup.neighbor(Site::v4(2), source_asn).carrying(NAMES);
    if source_asn == ASN {
        setup.reflecting(CLUSTER)
    } else {
        setup
    }
}

/// An attribute that a program originates.
struct Origin {
    code: Code,
    /// The family of its route.
    family: &'static str,
    /// The command that announces the route.
    announce: &'static str,
    /// The attribute as Cambric's `show routes` prints it.
    shown: &'static str,
}

/// Asserts that each attribute arrives through the reflector as it does directly from its source,
/// and that the reflector has decoded it.
async fn pass_unchanged(
    origins: &[Origin],
    source: &Speaker,
    reflector: &Speaker,
    [mut direct, mut reflected]: [Sender; 2],
) {
    for origin in origins {
        let (code, announce) = (origin.code, origin.announce);
        source.command(announce).await.expect("announced");
        let there = |peer: &Received| {
            let mut routes = peer.routes.values();
            routes.any(|attributes| attributes.contains_key(&code.0))
        };
        direct.receives(announce, there).await;
        reflected.receives(announce, there).await;
        let octets = |sender| with(sender, code).map(|found| found[&code.0].clone());
        assert_eq!(octets(&reflected), octets(&direct), "{announce}");
        let paths = reflector.paths_of(origin.family).await;
        let mut shown = paths
            .iter()
            .filter_map(|path| path.other_attributes.get(&code.to_string()));
        let shown = shown.next().map(String::as_str);
        assert_eq!(shown, Some(origin.shown), "{announce}: {paths:?}");
    }
    assert_eq!(reflected.received.oddities, Vec::<String>::new());
}

#[test]
fn attributes_of_gobgp_pass_unchanged() {
    const ORIGINS: &[Origin] = &[
        Origin {
            code: Code::Aigp,
            family: "ipv4-unicast",
            announce: "global rib add 10.70.0.0/24 aigp metric 1000 -a ipv4",
            shown: "1000",
        },
        Origin {
            code: Code::PmsiTunnel,
            family: "l2vpn-evpn",
            announce: "global rib add multicast 10.0.0.2 etag 0 rd 64512:1 rt 64512:1 \
                       pmsi ingress-repl 1000 10.0.0.2 -a evpn",
            shown: "flags 0, type ingress-replication, label 1000, identifier 10.0.0.2",
        },
        Origin {
            // A redirection of the type before RFC 8956, which has no name in Cambric.
            code: Code::Ipv6ExtendedCommunities,
            family: "ipv6-flowspec",
            announce: "global rib add match destination 2001:db8:1::/48 \
                       then redirect 2001:db8::1:100 -a ipv6-flowspec",
            shown: "0x800b20010db80000000000000000000000010064",
        },
    ];
    let name = "attributes of GoBGP";
    in_ground(&[Kind::Gobgp], name, async |ground| {
        let reflector = ground.speaker(Kind::Reflector, 1, &reflector(ASN)).await;
        let setup = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(NAMES);
        let setup = setup.neighbor(Site::v4(4), ASN).carrying(NAMES);
        let source = ground.speaker(Kind::Gobgp, 2, &setup).await;
        let reflected = scripted(&ground, 3, 1).await;
        let direct = scripted(&ground, 4, 2).await;
        pass_unchanged(ORIGINS, &source, &reflector, [direct, reflected]).await;
    });
}

#[test]
fn attributes_of_frr_pass_unchanged() {
    /// FRR has either of unicast and labeled unicast on a session.
    const NAMES: &[&str] = &["ipv4-labeled-unicast", "ipv4-vpn"];
    const ORIGINS: &[Origin] = &[
        Origin {
            // In the family of the session, the command needs zebra's labels.
            code: Code::PrefixSid,
            family: "ipv4-labeled-unicast",
            announce: "configure terminal\nrouter bgp 64512\naddress-family ipv4 unicast\n\
                       network 10.75.0.0/24 label-index 9",
            shown: "{type label-index, value 9}",
        },
        Origin {
            // The endpoint has the form of a draft before RFC 9012: address, then AS.
            code: Code::TunnelEncapsulation,
            family: "ipv4-vpn",
            announce: "configure terminal\nrouter bgp 64512\nvnc nve-group edge\n\
                       prefix vn 10.0.0.0/8\nprefix un 10.0.0.0/8\nrd 64512:9\n\
                       rt both 64512:9\nend\n\
                       add vnc prefix 10.77.0.0/24 vn 10.0.0.2 un 10.0.0.9 lifetime 1000",
            shown: "{type ip-in-ip, sub_tlvs {type egress-endpoint, value 0a0000090000fc00}}",
        },
    ];
    let name = "attributes of FRR";
    in_ground(&[Kind::Frr], name, async |ground| {
        let setup = [2, 3, 5].iter().fold(Setup::fabric(), |setup, number| {
            setup.neighbor(Site::v4(*number), ASN).carrying(NAMES)
        });
        let reflector = ground
            .speaker(Kind::Reflector, 1, &setup.reflecting(CLUSTER))
            .await;
        let client = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(NAMES);
        let behind = ground.speaker(Kind::Frr, 5, &client).await;
        let setup = client.neighbor(Site::v4(4), ASN).carrying(NAMES);
        let source = ground.speaker(Kind::Frr, 2, &setup).await;
        let families = [Family::IPV4_LABELED_UNICAST, Family::IPV4_VPN];
        let reflected = scripted_with(&ground, 3, 1, &families).await;
        let direct = scripted_with(&ground, 4, 2, &families).await;
        pass_unchanged(ORIGINS, &source, &reflector, [direct, reflected]).await;
        let index = r#""labelIndex":9,"#;
        let ask = "show bgp ipv4 labeled-unicast 10.75.0.0/24 json";
        understands(&behind, ask, |text| {
            let found = text.contains(index).then_some(());
            found.ok_or_else(|| format!("no {index}"))
        })
        .await;
    });
}

/// Waits until what a program prints satisfies `check`.
async fn understands(
    speaker: &Speaker,
    question: &str,
    check: impl Fn(&str) -> Result<(), String>,
) {
    let shown = netns_lab::until(interop_tests::PATIENCE, question, async || {
        let text = speaker.command(question).await?;
        let checked = check(&text).map_err(|missing| format!("{missing} in {text}"));
        Ok::<_, netns_lab::Error>(checked)
    });
    if let Err(error) = shown.await {
        panic!("{error}\n{}", speaker.log_tail());
    }
}

#[test]
fn only_to_customer_of_frr_passes_without_partial() {
    let name = "ONLY_TO_CUSTOMER of FRR";
    in_ground(&[Kind::Frr], name, async |ground| {
        let reflector = ground
            .speaker(Kind::Reflector, 1, &reflector(OTHER_ASN))
            .await;
        let setup = Setup::of(OTHER_ASN).neighbor(Site::v4(1), ASN);
        let source = ground
            .speaker(Kind::Frr, 2, &setup.carrying(&["ipv4-unicast"]))
            .await;
        let mut reflected = scripted(&ground, 3, 1).await;
        // Before that no configuration is accepted.
        reflector.is_up().await;
        let role = "configure terminal\nrouter bgp 65002\nneighbor 10.0.0.1 local-role provider\n\
                    address-family ipv4 unicast\nnetwork 10.72.0.0/24";
        source.command(role).await.expect("configured");
        let marked = (OPTIONAL_TRANSITIVE, OTHER_ASN.to_be_bytes().to_vec());
        reflected
            .receives(name, |received| {
                let mut routes = received.routes.values();
                routes.any(|attributes| attributes.get(&Code::OnlyToCustomer.0) == Some(&marked))
            })
            .await;
    });
}

/// Attributes with their values, and what GoBGP reads in each, as JSON.
const SCRIPTED: &[(Code, &[u8], &str)] = &[
    (
        // A VXLAN tunnel to 10.0.0.9 with color 7, and an SR policy with a segment list.
        Code::TunnelEncapsulation,
        &[
            0, 8, 0, 22, 6, 10, 0, 0, 0, 0, 0, 1, 10, 0, 0, 9, 4, 8, 3, 11, 0, 0, 0, 0, 0,
            7, //
            0, 15, 0, 28, 12, 6, 0, 0, 0, 0, 0, 200, 128, 0, 17, 0, 9, 6, 0, 0, 0, 0, 0, 5, 1, 6,
            0, 0, 3, 0xe8, 0x10, 0,
        ],
        r#"{"type": 23, "value": [
            {"type": 8, "value": [{"type": 6, "address": "10.0.0.9"}, {"type": 4, "color": 7}]},
            {"type": 15, "value": [
                {"type": 12, "flags": 0, "preference": 200},
                {"type": 128, "Weight": {"type": 9, "flags": 0, "weight": 5}, "Segments": [
                    {"type": 1, "v_flag": false, "a_flag": false, "s_flag": false,
                     "b_flag": false, "label": 16001, "tc": 0, "s": false, "ttl": 0}]}]}]}"#,
    ),
    (
        // The route target [2001:db8::1]:100.
        Code::Ipv6ExtendedCommunities,
        &[
            0, 2, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 100,
        ],
        r#"{"type": 25, "value": [{"type": 0, "subtype": 2, "value": "2001:db8::1:100"}]}"#,
    ),
    (
        // GoBGP 3.10 has no such attribute: the value in Base64.
        Code::OnlyToCustomer,
        &[0, 0, 0xfd, 0xea],
        r#"{"type": 35, "flags": 192, "value": "AAD96g=="}"#,
    ),
    (
        // A label index, which GoBGP 3.10 skips, and a segment over IPv6.
        Code::PrefixSid,
        &[
            1, 0, 7, 0, 0, 0, 0, 0, 0, 9, //
            5, 0, 34, 0, 1, 0, 30, 0, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            72, 0, 1, 0, 6, 64, 24, 16, 0, 0, 0,
        ],
        r#"{"type": 40, "flags": 192, "TLVs": [{"type": 5, "SubTLVs": [
            {"type": 1, "sid": "IAENuAABAAEAAAAAAAAAAA==", "flags": 0, "endpoint_behavior": 72,
             "sub_sub_tlvs": [{"type": 1, "locator_block_length": 64, "locator_node_length": 24,
              "function_length": 16, "argument_length": 0, "transposition_length": 0,
              "transposition_offset": 0}]}]}]}"#,
    ),
];

/// Returns an error if GoBGP has read anything but these values in its only path to a prefix.
fn as_read(text: &str, net: &str) -> Result<(), String> {
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let attributes = json[net][0]["attrs"].as_array().ok_or("no route")?;
    for (code, _, wanted) in SCRIPTED {
        let wanted: Value = serde_json::from_str(wanted).expect("JSON");
        let mut found = attributes.iter();
        match found.find(|attribute| attribute["type"] == code.0) {
            Some(found) if *found == wanted => {}
            found => return Err(format!("{code} is {found:?}")),
        }
    }
    Ok(())
}

#[test]
fn scripted_attributes_pass_and_are_understood() {
    let name = "scripted attributes";
    in_ground(&[Kind::Gobgp], name, async |ground| {
        let setup = reflector(ASN).neighbor(Site::v4(4), ASN).carrying(NAMES);
        let setup = setup.reflecting(CLUSTER);
        let _reflector = ground.speaker(Kind::Reflector, 1, &setup).await;
        let behind = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(NAMES);
        let behind = ground.speaker(Kind::Gobgp, 2, &behind).await;
        let mut from = scripted(&ground, 3, 1).await;
        let mut to = scripted(&ground, 4, 1).await;
        let mut update = Update::via(Site::v4(3)).announcing(
            "10.74.0.0/24"
                .parse::<bgp_proto::Ipv4Prefix>()
                .expect("net"),
        );
        let aigp = [1, 0, 11, 0, 0, 0, 0, 0, 0, 0, 10];
        for (code, value, _) in SCRIPTED {
            update = update.with(OPTIONAL_TRANSITIVE, *code, value);
        }
        update = update.with(OPTIONAL, Code::Aigp, &aigp);
        from.send(update).await.expect("sent");
        to.receives(name, |received| !received.routes.is_empty())
            .await;
        let found = with(&to, Code::Aigp).expect("a route with AIGP");
        assert_eq!(found[&Code::Aigp.0], (OPTIONAL, aigp.to_vec()));
        for (code, value, _) in SCRIPTED {
            assert_eq!(
                found[&code.0],
                (OPTIONAL_TRANSITIVE, value.to_vec()),
                "{code}"
            );
        }
        let ask = "global rib 10.74.0.0/24 -j -a ipv4";
        understands(&behind, ask, |text| as_read(text, "10.74.0.0/24")).await;
    });
}
