//! Values of the datastore: any octets are parsed or rejected, and a parsed value is encoded to the
//! same text.

use calico_model::{
    AllocationBlock, BlockAffinity, Kind, ResourceKey, Scope, Selector, encode_strict, shown,
};

use crate::octets::Octets;

/// Parses a key, a selector, a resource, or an IPAM value, selected by the first octet.
pub fn stored(data: &[u8]) {
    let mut octets = Octets(data);
    let choice = usize::from(octets.octet());
    match (choice % 4, std::str::from_utf8(octets.0)) {
        (0, Ok(text)) => key(text),
        (1, Ok(text)) => selector(text),
        (2, _) => {
            let _ = AllocationBlock::parse(octets.0).map(|block| {
                let again = AllocationBlock::parse(&block.encode());
                assert_eq!(again.ok(), Some(block));
            });
            let _ = BlockAffinity::parse(octets.0);
        }
        _ => resource(choice / 4, octets.0),
    }
}

fn key(text: &str) {
    if let Ok(key) = text.parse::<calico_model::Key>() {
        assert_eq!(key.to_string(), text);
    }
}

fn selector(text: &str) {
    let Ok(selector) = text.parse::<Selector>() else {
        return;
    };
    let canonical = selector.to_string();
    // `!!a` means `!(!a)`, and parses as `a`.
    if !canonical.contains("!!") {
        assert_eq!(canonical.parse(), Ok(selector.clone()), "{canonical}");
    }
    let _ = selector.matches_by(&|label| (label.len() % 2 == 0).then_some("x"));
}

/// Asserts that the displayed form of a stored value can be applied again, unless it violates the
/// schema; and that it is then displayed as before.
fn resource(choice: usize, octets: &[u8]) {
    let Some(kind) = Kind::ALL.get(choice % Kind::ALL.len()) else {
        return;
    };
    let namespace = (kind.scope() == Scope::Namespaced).then_some("n");
    let Ok(key) = ResourceKey::new(*kind, namespace, "x") else {
        return;
    };
    let Ok(value) = shown(&key, octets, 1) else {
        return;
    };
    let Ok((key, written)) = encode_strict(value) else {
        return;
    };
    let once =
        shown(&key, written.to_string().as_bytes(), 1).expect("the written value is readable");
    let (_, again) = encode_strict(once).expect("the shown value can be written");
    assert_eq!(again, written);
}
