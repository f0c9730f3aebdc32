//! Files of recorded messages: MRT files and packet captures, read to their end.

use bgp_proto::{FamilySet, SessionParams, decode_message};
use capture::{Content, Item, Sessions};

/// Reads the octets as an MRT file and as a capture.
pub fn recorded(data: &[u8]) {
    for record in mrt::Reader::new(data).map_while(Result::ok) {
        match record.entry() {
            Ok(mrt::Entry::Message(message)) => decoded(&message.octets, message.as4),
            Ok(mrt::Entry::TableDump(path)) => {
                let params = params(false);
                let block = mrt::table_attributes(&path.attributes, path.family(), &params);
                let _set = block.parse();
            }
            _ => {}
        }
    }
    let mut sessions = Sessions::new(179);
    let (mut captured, mut found) = (0, 0);
    for packet in capture::Reader::new(data).map_while(Result::ok) {
        captured += packet.octets.len();
        let items = sessions.push(&packet);
        found += items.len();
        items.iter().for_each(item);
    }
    let items = sessions.finish();
    found += items.len();
    items.iter().for_each(item);
    assert!(found <= captured, "{found} items of {captured} octets");
}

fn item(item: &Item) {
    if let Content::Message { octets, encoding } = &item.content {
        decoded(octets, encoding.as4);
    }
}

fn decoded(octets: &[u8], as4: bool) {
    let _message = decode_message(octets, &params(as4));
}

fn params(as4: bool) -> SessionParams {
    SessionParams {
        as4,
        families: FamilySet::all(),
        ..SessionParams::default()
    }
}
