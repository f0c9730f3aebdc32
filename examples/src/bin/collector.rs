//! Prints each change of the best routes of a peer as a line of JSON, its session on stderr.
//!
//! `collector LISTEN AS ROUTER-ID PEER PEER-AS`, such as
//! `collector 192.0.2.1:179 64512 192.0.2.1 192.0.2.2 64513`. The peer dials.

use std::error::Error;

use cambric::fsm::PeerAs;
use cambric::io::{Io, IoConfig};
use cambric::proto::{Asn, Family, RouterId};
use cambric::rib::{Budget, Change, Policy, Progress, Role};
use cambric::speaker::{Speaker, SpeakerConfig};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, asn, id, peer, peer_asn] = &arguments[..] else {
        return Err("usage: collector LISTEN AS ROUTER-ID PEER PEER-AS".into());
    };
    let (asn, peer_asn): (Asn, Asn) = (asn.parse()?, peer_asn.parse()?);
    let config = SpeakerConfig::new(asn, RouterId(id.parse()?));
    let role = if asn == peer_asn {
        Role::Internal
    } else {
        Role::External
    };
    let mut peer = config.neighbor(peer.parse()?, role);
    peer.session.peer_asn = PeerAs::Exactly(peer_asn);
    peer.session.passive = true;
    peer.import = Policy::AcceptAll; // RFC 8212: without a policy nothing is accepted
    let config = config.with_peer(peer);

    let families = config.families;
    let mut speaker = Speaker::new(config, 1);
    let reader = speaker.add_reader();
    let mut io = Io::new(speaker, IoConfig::new([listen.parse()?]))?;
    loop {
        for event in io.next().await {
            eprintln!("{event:?}");
        }
        for family in families.iter() {
            let mut print = |change: Change<'_>| println!("{}", line(family, &change));
            while io.read(reader, family, Budget(1000), &mut print) == Progress::More {}
        }
    }
}

/// A change as JSON: without attributes there is no route any more.
fn line(family: Family, change: &Change<'_>) -> Value {
    let attributes = change.route.map(|route| route.best().attributes);
    json!({ "family": family, "prefix": change.net, "attributes": attributes })
}
