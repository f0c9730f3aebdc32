//! The operator's page of the keys of a neighbor, made from the speaker's own table
//! ([`bgp_speaker::keys`]).

use std::fmt::Write as _;

use bgp_speaker::keys::{Key, Place, RANGE_KEYS, Store};
use bgp_speaker::{PEER_KEYS, PeerConfig};

const HEAD: &str = "\
# Keys of a neighbor

The keys of `[[neighbor]]` and `[[neighbor_range]]` in the files of `cambric-bgp-client` and
`cambric-route-reflector`, in the order in which they are read. [changes.md](changes.md) has the effect
of a changed key on a session. This page is made from the table of the speaker; a test compares them.

";

const STORE: &str = "
## In the datastore

A BGPPeer configures these keys of its sessions. The others have their defaults, or follow from the
node and the fabric.

| key | BGPPeer |
|---|---|
";

const ANNOTATIONS: &str = "
The value of an annotation is a text, with the same content as in a file:
`\"cambric.io/hold-time\": \"30\"` in `metadata.annotations`. `cambric show status` reports an invalid
value and an unknown name; the key then has its default. `prefix_limit` and `prefix_limit_out` apply only
to the nodes of the BGPPeer, and not to [the reverse side](bgp-resources.md#bgppeer) of the session;
`transit` likewise. `origin_validation` applies to both sides.
";

const ONLY_STORED: &str = "
These keys have a meaning only with the records of a datastore, so a file has none of them:

| key | value | default | meaning |
|---|---|---|---|
";

/// Returns the page `docs/operate/neighbor.md`.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in RANGE_KEYS {
        row(&mut page, key, "required");
    }
    for key in PEER_KEYS.iter().filter(|key| !key.places.is_empty()) {
        row(&mut page, key, &key.default_text());
    }
    page.push_str(STORE);
    for key in PEER_KEYS {
        if let Some(stored) = stored(key) {
            let _ = writeln!(page, "| `{}` | {stored} |", key.name);
        }
    }
    page.push_str(ANNOTATIONS);
    page.push_str(ONLY_STORED);
    let is_only_stored = |key: &&Key<_>| key.places.is_empty() && key.store == Store::Annotation;
    for key in PEER_KEYS.iter().filter(is_only_stored) {
        row(&mut page, key, &key.default_text());
    }
    page
}

fn row<C>(page: &mut String, key: &Key<C>, default: &str) {
    let only = match (key.is_in(Place::Neighbor), key.is_in(Place::Range)) {
        (true, false) => "`[[neighbor]]` only: ",
        (false, true) => "`[[neighbor_range]]` only: ",
        _ => "",
    };
    let (name, kind, meaning) = (key.name, key.kind, key.meaning);
    let _ = writeln!(page, "| `{name}` | {kind} | {default} | {only}{meaning} |");
}

fn stored(key: &Key<PeerConfig>) -> Option<String> {
    match key.store {
        Store::Fields(fields) => {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            Some(fields.join(", "))
        }
        _ => key.annotation().map(|name| format!("annotation `{name}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promise: as bgp-speaker every_field_of_a_peer_has_a_key
    #[test]
    fn page_of_keys_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/neighbor.md");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, page()).expect("docs/operate can be written");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written,
            page(),
            "run the test with UPDATE_EXPECT=1 to write it"
        );
    }
}
