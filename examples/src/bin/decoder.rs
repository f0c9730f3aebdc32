//! Prints the messages of an MRT file as lines of JSON.
//!
//! `decoder FILE`: plain, gzip or bzip2.

use std::error::Error;

use cambric::mrt::{self, Bgp4mpMessage, Entry};
use cambric::proto::{FamilySet, Message, Notification, SessionParams, decode_message};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: decoder FILE")?;
    for record in mrt::open(file.as_ref())? {
        if let Entry::Message(message) = record?.entry()? {
            let content = match content(&message) {
                Ok(content) => content,
                Err(error) => json!({ "malformed": error }),
            };
            let peer = message.session.peer_address;
            println!("{}", json!({ "peer": peer, "message": content }));
        }
    }
    Ok(())
}

/// Returns the content of a message.
fn content(message: &Bgp4mpMessage) -> Result<Value, Notification> {
    let families = FamilySet::all();
    let add_path_receive = if message.add_path {
        families
    } else {
        FamilySet::EMPTY
    };
    let params = SessionParams {
        as4: message.as4,
        families,
        add_path_receive,
        extended_receive: true,
        ..SessionParams::default()
    };
    Ok(match decode_message(&message.octets, &params)? {
        Some((Message::Open(open), _)) => json!({ "open": open }),
        Some((Message::Notification(notification), _)) => json!({ "notification": notification }),
        Some((Message::RouteRefresh(refresh), _)) => json!({ "route_refresh": refresh }),
        Some((Message::Update { view, faults }, _)) => {
            let batches = view.batches_as_sent().map(|batch| {
                let reach: Vec<_> = batch.reach.filter_map(Result::ok).collect();
                let unreach: Vec<_> = batch.unreach.filter_map(Result::ok).collect();
                let attributes = batch.attrs.map(|block| block.parse().0);
                json!({ "family": batch.family, "reach": reach, "unreach": unreach,
                        "attributes": attributes })
            });
            json!({ "update": batches.collect::<Vec<_>>(), "faults": faults,
                    "end_of_rib": view.end_of_rib() })
        }
        Some((message, _)) => json!(message.kind().to_string()),
        None => json!("cut off"),
    })
}
