//! Announces many routes to a peer, reports when all of them are sent, and keeps the session.
//!
//! `injector AS ROUTER-ID PEER PORT PEER-AS COUNT`, such as
//! `injector 64512 192.0.2.1 192.0.2.2 179 64513 10000`: 10.0.0.0/32, 10.0.0.1/32 and so on.

use std::error::Error;
use std::net::Ipv4Addr;

use cambric::fsm::PeerAs;
use cambric::io::{Io, IoConfig};
use cambric::proto::{Asn, Attributes, Family, Ipv4Prefix, Net, RouterId};
use cambric::rib::{Policy, Role};
use cambric::speaker::{Input, Speaker, SpeakerConfig};

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [asn, id, peer, port, peer_asn, count] = &arguments[..] else {
        return Err("usage: injector AS ROUTER-ID PEER PORT PEER-AS COUNT".into());
    };
    let (asn, peer_asn): (Asn, Asn) = (asn.parse()?, peer_asn.parse()?);
    let config = SpeakerConfig::new(asn, RouterId(id.parse()?));
    let role = if asn == peer_asn {
        Role::Internal
    } else {
        Role::External
    };
    let mut peer = config.neighbor(peer.parse()?, role);
    peer.port = port.parse()?;
    peer.session.peer_asn = PeerAs::Exactly(peer_asn);
    peer.export = Policy::AcceptAll; // RFC 8212: without a policy nothing is advertised
    let mut io = Io::new(Speaker::new(config.with_peer(peer), 1), IoConfig::default())?;

    let count: u32 = count.parse()?;
    for number in 0..count {
        let address = Ipv4Addr::from_bits(FIRST.to_bits().wrapping_add(number));
        io.handle(Input::Local {
            family: Family::IPV4_UNICAST,
            net: Net::V4(Ipv4Prefix::host(address)),
            attributes: Some(Attributes::default()),
            interface: None,
        });
    }
    let mut is_reported = false;
    loop {
        for event in io.next().await {
            eprintln!("{event:?}");
        }
        let is_up = io.speaker().peers().all(|peer| peer.params.is_some());
        if is_up && io.all_sent() && !std::mem::replace(&mut is_reported, true) {
            println!("{count} routes are sent");
        }
    }
}
