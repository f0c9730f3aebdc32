//! Dials a peer and prints each message that it sends as a line of JSON, its session on stderr.
//!
//! `updates AS ROUTER-ID PEER PEER-AS`, such as `updates 64512 192.0.2.1 192.0.2.2:179 64513`.

use std::error::Error;

use cambric::fsm::{PeerAs, SessionConfig};
use cambric::io::{Connector, ReceivedUpdate, SessionEvent};
use cambric::proto::{FamilySet, RouterId};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [asn, id, peer, peer_asn] = &arguments[..] else {
        return Err("usage: updates AS ROUTER-ID PEER PEER-AS".into());
    };
    let mut config = SessionConfig::new(asn.parse()?, RouterId(id.parse()?));
    config.peer_asn = PeerAs::Exactly(peer_asn.parse()?);
    config.families = FamilySet::UNICAST;
    let mut session = Connector::new(config).connect(peer.parse()?).await?;
    while let Some(event) = session.next().await {
        match event {
            SessionEvent::Update(update) => println!("{}", line(&update)),
            SessionEvent::EndOfRib(family) => println!("{}", json!({ "end_of_rib": family })),
            SessionEvent::Refresh(refresh) => println!("{}", json!({ "refresh": refresh })),
            SessionEvent::Down(reason) => return Err(reason.into()),
            other => eprintln!("{other:?}"),
        }
    }
    Ok(())
}

/// An UPDATE as JSON.
fn line(update: &ReceivedUpdate) -> Value {
    let routes = update.routes().map(|routes| {
        let announced: Vec<_> = routes.announced().collect();
        let withdrawn: Vec<_> = routes.withdrawn().collect();
        json!({ "family": routes.family, "announced": announced, "withdrawn": withdrawn,
                "attributes": routes.attributes })
    });
    json!({ "routes": routes.collect::<Vec<_>>(), "faults": update.faults() })
}
