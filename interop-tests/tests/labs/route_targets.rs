//! Route target membership (RFC 4684) between Cambric's reflectors and GoBGP, with a VRF for each
//! route target: each client gets the VPN routes of its targets.
//!
//! Known differences:
//! * FRR 8.4, BIRD 2.0.12 and OpenBGPD 7.7 do not support the family.
//! * GoBGP 3.10 sends no End-of-RIB marker without graceful restart, so its labs have that.

use std::net::Ipv4Addr;

use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground};

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const OTHER_CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 8);
const FAMILIES: &[&str] = &["ipv4-vpn", "route-target"];
const RESTART_S: u16 = 60;

/// Starts GoBGP on a host as a client of a reflector.
async fn client(ground: &Ground, number: u8, reflector: u8) -> Speaker {
    let mut setup = Setup::fabric().neighbor(Site::v4(reflector), ASN);
    setup = setup.carrying(FAMILIES);
    setup.restart_time_s = Some(RESTART_S);
    ground.speaker(Kind::Gobgp, number, &setup).await
}

async fn command(speaker: &Speaker, words: &str) {
    let done = speaker.command(words).await;
    done.unwrap_or_else(|error| panic!("{words}: {error}"));
}

/// Adds a VRF whose routes have, and which imports, this route target.
async fn add_vrf(speaker: &Speaker, number: u8, target: u8) {
    let words = format!("vrf add t{target} rd 64512:{number}{target} rt both 64512:{target}");
    command(speaker, &words).await;
}

/// Originates 10.`number`.`target`.0/24 in a VRF.
async fn originate(speaker: &Speaker, number: u8, target: u8) {
    command(
        speaker,
        &format!("vrf t{target} rib add 10.{number}.{target}.0/24"),
    )
    .await;
}

/// Waits until a client has exactly these VPN routes of others.
async fn has(speaker: &Speaker, own: u8, expected: &[&str]) {
    let what = format!("{expected:?} at {own}");
    let own = format!("10.{own}.");
    let found = netns_lab::until(PATIENCE, &what, async || {
        let text = speaker.command("global rib -a vpnv4").await?;
        let nets = text.split_whitespace().filter_map(|word| {
            let (rest, net) = word.rsplit_once(':')?;
            (rest.starts_with("64512:") && net.ends_with("/24")).then_some(net)
        });
        let mut nets: Vec<&str> = nets.filter(|net| !net.starts_with(&own)).collect();
        nets.sort_unstable();
        nets.dedup();
        Ok::<_, netns_lab::Error>(if nets == expected { Ok(()) } else { Err(text) })
    });
    if let Err(error) = found.await {
        panic!("{error}\n{}", speaker.log_tail());
    }
}

#[test]
fn clients_with_one_target_receive_each_other() {
    let name = "clients with one target receive each other";
    in_ground(&[Kind::Gobgp], name, async |ground| {
        let mut setup = Setup::fabric();
        for number in 2..=4 {
            setup = setup.neighbor(Site::v4(number), ASN).carrying(FAMILIES);
        }
        setup.restart_time_s = Some(RESTART_S);
        let setup = setup.reflecting(CLUSTER);
        let reflector = ground.speaker(Kind::Reflector, 1, &setup).await;
        let mut clients = vec![];
        for number in 2..=4 {
            clients.push(client(&ground, number, 1).await);
        }
        let [two, three, four] = &clients[..] else {
            unreachable!("three clients")
        };
        for (speaker, number, target) in [(two, 2, 7), (three, 3, 7), (four, 4, 8)] {
            add_vrf(speaker, number, target).await;
            originate(speaker, number, target).await;
        }
        has(two, 2, &["10.3.7.0/24"]).await;
        has(three, 3, &["10.2.7.0/24"]).await;
        has(four, 4, &[]).await;

        // A second target: its routes alone are added, and withdrawn again.
        add_vrf(two, 2, 8).await;
        has(two, 2, &["10.3.7.0/24", "10.4.8.0/24"]).await;
        command(two, "vrf del t8").await;
        has(two, 2, &["10.3.7.0/24"]).await;
        has(three, 3, &["10.2.7.0/24"]).await;
        has(four, 4, &[]).await;
        reflector.stood(|_| true).await;
    });
}

#[test]
fn targets_pass_between_two_reflectors() {
    let name = "targets pass between two reflectors";
    in_ground(&[Kind::Gobgp], name, async |ground| {
        let mut reflectors = vec![];
        for (number, other, of, cluster) in [(1, 2, 3, CLUSTER), (2, 1, 4, OTHER_CLUSTER)] {
            let setup = Setup::fabric()
                .neighbor(Site::v4(of), ASN)
                .carrying(FAMILIES);
            let setup = setup.reflecting(cluster);
            let mut setup = setup.neighbor(Site::v4(other), ASN).carrying(FAMILIES);
            setup.restart_time_s = Some(RESTART_S);
            reflectors.push(ground.speaker(Kind::Reflector, number, &setup).await);
        }
        let (three, four) = (client(&ground, 3, 1).await, client(&ground, 4, 2).await);
        for (speaker, number) in [(&three, 3), (&four, 4)] {
            add_vrf(speaker, number, 7).await;
            originate(speaker, number, 7).await;
        }
        has(&three, 3, &["10.4.7.0/24"]).await;
        has(&four, 4, &["10.3.7.0/24"]).await;
        // Without the membership of the one, the other's route is not needed behind its reflector.
        command(&four, "vrf del t7").await;
        has(&three, 3, &[]).await;
        for reflector in &reflectors {
            reflector.stood(|_| true).await;
        }
    });
}
