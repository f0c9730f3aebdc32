//! Prints what a peer sends as lines of JSON, before policy, and its session as it changes.
//!
//! `collector LISTEN AS ROUTER-ID PEER PEER-AS`, such as
//! `collector 192.0.2.1:179 64512 192.0.2.1 192.0.2.2 64513`. The peer dials.

use std::error::Error;

use cambric::fsm::{Instant, PeerAs};
use cambric::io::{Event, Io, IoConfig};
use cambric::proto::{Nlri, RouterId};
use cambric::rib::{Role, Routes, Stage};
use cambric::speaker::{Monitor, Record, Speaker, SpeakerConfig};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, asn, id, peer, peer_asn] = &arguments[..] else {
        return Err("usage: collector LISTEN AS ROUTER-ID PEER PEER-AS".into());
    };
    let config = SpeakerConfig::new(asn.parse()?, RouterId(id.parse()?));
    let role = [Role::External, Role::Internal][usize::from(asn == peer_asn)];
    let mut peer = config.neighbor(peer.parse()?, role);
    peer.session.peer_asn = PeerAs::Exactly(peer_asn.parse()?);
    peer.session.passive = true;
    let mut speaker = Speaker::new(config.with_peer(peer), 1);
    speaker.start_monitor(Instant::ZERO, Monitor::new([Stage::AdjRibInPrePolicy]));
    let mut io = Io::new(speaker, IoConfig::new([listen.parse()?]))?;
    loop {
        for event in io.next().await {
            match event {
                Event::Monitor(Record::Routes { routes, .. }) => {
                    for route in routes.nlri() {
                        println!("{}", line(&routes, route));
                    }
                }
                event => eprintln!("{event:?}"),
            }
        }
    }
}

/// A route as JSON: without attributes it is withdrawn.
fn line(routes: &Routes, route: Nlri<'_>) -> Value {
    json!({
        "family": routes.family,
        "prefix": route.net,
        "path_id": route.path_id,
        "attributes": routes.attributes.as_deref(),
    })
}
