//! A reader with the behavior of Calico's: `calicoctl node status`, the readiness probe, and the
//! reporter of node status. Input that they would misread is a panic here.

/// A row of `show protocols`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) kind: String,
    pub(super) address: String,
    pub(super) state: String,
    pub(super) bgp_state: String,
    pub(super) info: String,
}

/// A row of `show route`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) to: String,
    pub(super) gateway: String,
    pub(super) interface: String,
    pub(super) from: String,
    pub(super) primary: bool,
}

/// The peers that are taken for Calico's; `separator` is that of the socket's family.
pub(super) fn peers(text: &str, separator: &str) -> Vec<Peer> {
    let mut peers = Vec::new();
    for line in text.lines() {
        let row = match line.get(..4) {
            Some("0000") => return peers,
            Some("0001") => continue,
            Some("2002") => {
                let head: Vec<_> = line[5..].split_whitespace().collect();
                assert_eq!(head, ["name", "proto", "table", "state", "since", "info"]);
                continue;
            }
            Some("1002") => &line[5..],
            _ => line.strip_prefix(' ').unwrap_or_else(|| panic!("{line}")),
        };
        let words: Vec<_> = row.split_whitespace().collect();
        let [name, "BGP", _, state, _, bgp_state, info @ ..] = words.as_slice() else {
            continue;
        };
        let Some((kind @ ("Global" | "Node" | "Mesh"), address)) = name.split_once('_') else {
            continue;
        };
        peers.push(Peer {
            kind: kind.to_owned(),
            address: address.replace('_', separator),
            state: (*state).to_owned(),
            bgp_state: (*bgp_state).to_owned(),
            info: info.join(" "),
        });
    }
    panic!("no end: {text}");
}

/// The value behind a key of `show protocols all`.
pub(super) fn detail<'t>(text: &'t str, key: &str) -> &'t str {
    let mut lines = text.lines().take_while(|line| !line.starts_with("0000"));
    let found = lines.find_map(|line| line.split_once(key));
    found.unwrap_or_else(|| panic!("no {key}: {text}")).1.trim()
}

/// The routes; one line each.
pub(super) fn routes(text: &str) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for line in text.lines() {
        let row = match line.get(..4) {
            Some("0000") => return routes,
            Some("0001") => continue,
            Some("1007") => &line[5..],
            _ => line.strip_prefix(' ').unwrap_or_else(|| panic!("{line}")),
        };
        let (before, rest) = row.split_once(" [").expect("a source");
        let (to, how) = before.split_once(' ').expect("a prefix, or room for one");
        let to = match to {
            "" => routes.last().expect("a prefix before").to.clone(),
            to => to.to_owned(),
        };
        let how: Vec<_> = how.split_whitespace().collect();
        let (gateway, interface) = match how.as_slice() {
            ["via", gateway, "on", interface] => (*gateway, *interface),
            ["dev", interface] => ("N/A", *interface),
            [kind @ ("blackhole" | "unreachable")] => ("N/A", *kind),
            other => panic!("{other:?}"),
        };
        let (source, behind) = rest.split_once(']').expect("its end");
        let (from, when) = source.split_once(' ').expect("a time");
        assert!(!when.is_empty());
        let known = ["kernel", "static", "direct", "Mesh_", "Node_", "Global_"];
        assert!(known.iter().any(|begin| from.starts_with(begin)), "{from}");
        routes.push(Route {
            to,
            gateway: gateway.to_owned(),
            interface: interface.to_owned(),
            from: from.to_owned(),
            primary: behind.starts_with(" *"),
        });
    }
    panic!("no end: {text}");
}

/// The content of `show status`: the version, the router ID, and whether a graceful restart is in
/// progress.
pub(super) fn status(text: &str) -> (String, String, bool) {
    let (mut version, mut router_id, mut restarting) = (String::new(), String::new(), false);
    for line in text.lines() {
        let row = match line.get(..4) {
            Some("0013") => return (version, router_id, restarting),
            Some("0024") => {
                restarting = true;
                continue;
            }
            Some("0001" | "1000" | "1011") => &line[5..],
            _ => line.strip_prefix(' ').unwrap_or_else(|| panic!("{line}")),
        };
        if let Some(found) = row
            .strip_prefix("BIRD v")
            .filter(|_| !row.contains("ready"))
        {
            version = found.to_owned();
        } else if let Some(found) = row.strip_prefix("Router ID is ") {
            router_id = found.to_owned();
        }
    }
    panic!("no end: {text}");
}
