//! What an operator is shown of what was derived.

use super::*;

#[test]
fn every_neighbour_tells_what_it_comes_from() {
    let mut view = view(&[
        ("a", r#""ipv4Address":"10.0.0.1/24""#),
        ("b", r#""ipv4Address":"10.0.0.2/24""#),
        ("c", r#""ipv4Address":"10.0.0.3/24""#),
    ]);
    let mut put = |place: &str, spec: &str| {
        let key = format!("/calico/resources/v3/projectcalico.org/{place}");
        let text = format!(r#"{{"spec":{spec}}}"#);
        assert!(view.take(key.as_bytes(), Some(text.as_bytes())), "{place}");
    };
    put("ippools/p", r#"{"cidr":"10.65.0.0/16"}"#);
    put("bgpfilters/f", r#"{"importV4":[{"action":"Reject"}]}"#);
    put(
        "bgppeers/tor",
        r#"{"peerIP":"10.0.0.254","asNumber":64700,"filters":["f"],"nextHopMode":"Self"}"#,
    );
    put(
        "bgppeers/pair",
        r#"{"node":"c","peerIP":"10.0.0.1","asNumber":64512}"#,
    );
    let derived = derive(&view, &host("a"), &Secrets::new());
    assert_eq!(derived.faults, []);
    let intent = derived.intent.expect("a speaker");
    let settings = crate::report::settings(&intent.speaker, &intent.listen, &|address| {
        address.map_or_else(String::new, |address| derived.origins[&address].clone())
    });
    let from: Vec<(&str, &str)> = settings
        .neighbors
        .iter()
        .map(|neighbor| (&*neighbor.name, &*neighbor.from))
        .collect();
    assert_eq!(
        from,
        [
            ("Global_10_0_0_254", "BGPPeer tor"),
            ("Mesh_10_0_0_2", "the mesh of all nodes"),
            ("Node_10_0_0_3", "the other side of BGPPeer pair"),
        ]
    );
    let tor = &settings.neighbors[0];
    let key = |name: &str| {
        let mut keys = tor.keys.iter();
        keys.find(|key| key.name == name)
            .map(|key| key.value.as_str())
    };
    assert_eq!(key("address"), Some("10.0.0.254"));
    assert_eq!(key("asn"), Some("64700"));
    assert_eq!(key("local_asn"), Some("64512"));
    assert_eq!(key("next_hop"), Some("self"));
    assert_eq!(key("password"), None);
    assert_eq!(
        tor.import,
        ["BGPFilter f importV4[0]: deny", "all else: accept"]
    );
    assert_eq!(
        tor.export.first().map(String::as_str),
        Some("own routes: goes on")
    );
    assert!(tor.export.contains(&"pools: accept".to_owned()));
    assert_eq!(
        tor.export.last().map(String::as_str),
        Some("all else: deny")
    );
}
