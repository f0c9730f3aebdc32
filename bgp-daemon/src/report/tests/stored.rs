//! The settings report of a speaker that Calico's resources configure.

use std::time::Duration;

use bgp_config::Host;
use bgp_proto::{Family, FamilySet};
use calico_bgp::{Secrets, View, derive};
use rib::NextHops;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn host() -> Host {
    Host {
        name: "a".to_owned(),
        families: [Family::IPV4_UNICAST].into_iter().collect::<FamilySet>(),
        multipath_max: 1,
        next_hops: NextHops::Track,
        restart_wait: Duration::from_secs(90),
        reflects: false,
        reflectors: None,
        registration_ttl: Duration::from_secs(15),
        absence_wait: Duration::from_secs(60),
    }
}

#[test]
fn settings_name_the_resource_of_each_neighbor() {
    let mut view = View::default();
    let mut put = |place: &str, spec: &str| {
        let key = format!("{RESOURCES}/{place}");
        let text = format!(r#"{{"spec":{spec}}}"#);
        assert!(view.take(key.as_bytes(), Some(text.as_bytes())), "{place}");
    };
    put("nodes/a", r#"{"bgp":{"ipv4Address":"10.0.0.1/24"}}"#);
    put("nodes/b", r#"{"bgp":{"ipv4Address":"10.0.0.2/24"}}"#);
    put("nodes/c", r#"{"bgp":{"ipv4Address":"10.0.0.3/24"}}"#);
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
    let derived = derive(&view, &host(), &Secrets::new());
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
        Some("own routes: continue")
    );
    assert!(tor.export.contains(&"pools: accept".to_owned()));
    assert_eq!(
        tor.export.last().map(String::as_str),
        Some("all else: deny")
    );
}
