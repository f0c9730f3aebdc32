//! Attributes that few routes have, through Cambric's reflector: octet for octet as another
//! project's encoder wrote them, without the Partial flag, and decoded by other implementations.
//!
//! GoBGP 3.10 originates AIGP and PMSI_TUNNEL, FRR 8.4 ONLY_TO_CUSTOMER. The others come from a
//! scripted peer, and GoBGP has to decode them.

use std::net::Ipv4Addr;

use bgp_proto::{AttrCode as Code, Family};
use interop_tests::{
    Ground, Kind, Setup, Site, in_ground,
    received::Attributes,
    sender::{Opening, Sender},
};
use testkit::{OPTIONAL, OPTIONAL_TRANSITIVE, Update};

const ASN: u32 = 64512;
const OTHER_ASN: u32 = 65002;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const NAMES: &[&str] = &["ipv4-unicast", "l2vpn-evpn"];
const FAMILIES: &[Family] = &[Family::IPV4_UNICAST, Family::L2VPN_EVPN];

/// A scripted peer on host `number` with a session to host `to`.
async fn scripted(ground: &Ground, number: u8, to: u8) -> Sender {
    let site = ground.site(number).await.expect("a host");
    let opening = Opening {
        asn: ASN,
        id: Site::v4(number),
        hold_time: 600,
        families: FAMILIES,
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

#[test]
fn attributes_of_gobgp_pass_unchanged() {
    const ROUTES: &[(Code, &str)] = &[
        (
            Code::Aigp,
            "global rib add 10.70.0.0/24 aigp metric 1000 -a ipv4",
        ),
        (
            Code::PmsiTunnel,
            "global rib add multicast 10.0.0.2 etag 0 rd 64512:1 rt 64512:1 \
             pmsi ingress-repl 1000 10.0.0.2 -a evpn",
        ),
    ];
    let name = "attributes of GoBGP";
    in_ground(&[Kind::Gobgp], name, async |ground| {
        let _reflector = ground.speaker(Kind::Reflector, 1, &reflector(ASN)).await;
        let setup = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(NAMES);
        let setup = setup.neighbor(Site::v4(4), ASN).carrying(NAMES);
        let source = ground.speaker(Kind::Gobgp, 2, &setup).await;
        let mut reflected = scripted(&ground, 3, 1).await;
        let mut direct = scripted(&ground, 4, 2).await;
        for (code, announce) in ROUTES {
            source.command(announce).await.expect("announced");
            let there = |peer: &interop_tests::received::Received| {
                let mut routes = peer.routes.values();
                routes.any(|attributes| attributes.contains_key(&code.0))
            };
            direct.receives(announce, there).await;
            reflected.receives(announce, there).await;
            let octets = |sender| with(sender, *code).map(|found| found[&code.0].clone());
            assert_eq!(octets(&reflected), octets(&direct), "{announce}");
        }
        assert_eq!(reflected.received.oddities, Vec::<String>::new());
    });
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

/// Attributes with their values, and what GoBGP prints of each.
const SCRIPTED: &[(Code, &[u8], &str)] = &[
    (
        // A VXLAN tunnel to 10.0.0.9.
        Code::TunnelEncapsulation,
        &[0, 8, 0, 12, 6, 10, 0, 0, 0, 0, 0, 1, 10, 0, 0, 9],
        r#""type":23"#,
    ),
    (
        // The route target [2001:db8::1]:100.
        Code::Ipv6ExtendedCommunities,
        &[
            0, 2, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 100,
        ],
        "2001:db8::1:100",
    ),
    (Code::OnlyToCustomer, &[0, 0, 0xfd, 0xea], r#""type":35"#),
    (
        Code::PrefixSid,
        &[1, 0, 7, 0, 0, 0, 0, 0, 0, 9],
        r#""type":40"#,
    ),
];

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
        let shown = netns_lab::until(interop_tests::PATIENCE, name, async || {
            let text = behind.command("global rib 10.74.0.0/24 -j -a ipv4").await?;
            let missing = SCRIPTED.iter().find(|(_, _, shown)| !text.contains(shown));
            Ok::<_, netns_lab::Error>(match missing {
                None => Ok(()),
                Some((code, ..)) => Err(format!("no {code} in {text}")),
            })
        });
        if let Err(error) = shown.await {
            panic!("{error}\n{}", behind.log_tail());
        }
    });
}
