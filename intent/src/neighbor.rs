//! `[[neighbor]]` and `[[neighbor_range]]`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use admin::config::{Problem, Problems};
use bgp_proto::Prefix;
use bgp_speaker::{PeerConfig, RangeConfig};
use ipnet::IpNet;
use toml::Spanned;

use crate::check::{twice, unicast};
use crate::file::{Neighbor, NeighborRange};
use crate::session::{Common, name};

/// The configured peers.
pub(crate) fn peers(
    neighbors: &[Spanned<Neighbor>],
    common: &Common,
    problems: &mut Problems<'_>,
    notes: &mut Vec<String>,
) -> Vec<PeerConfig> {
    let addresses = neighbors.iter().map(|neighbor| &neighbor.get_ref().address);
    twice(
        addresses.map(|at| (*at.get_ref(), at.span())),
        "neighbor",
        problems,
    );
    let mut addresses = BTreeSet::new();
    let names = neighbors
        .iter()
        .map(Spanned::get_ref)
        .filter_map(|neighbor| {
            let address = *neighbor.address.get_ref();
            let first = addresses.insert(address);
            match &neighbor.name {
                Some(name) => Some((name.get_ref().clone(), name.span())),
                // A second one without a name has been reported for its address.
                None => first.then(|| (address.to_string(), neighbor.address.span())),
            }
        });
    twice(names, "the name", problems);
    neighbors
        .iter()
        .map(|neighbor| peer(neighbor.get_ref(), common, problems, notes))
        .collect()
}

/// The ranges, the most specific first, so that the first that covers an address is the right one.
pub(crate) fn ranges(
    ranges: &[Spanned<NeighborRange>],
    common: &Common,
    problems: &mut Problems<'_>,
    notes: &mut Vec<String>,
) -> Vec<RangeConfig> {
    let prefixes = ranges.iter().map(|range| &range.get_ref().prefix);
    twice(
        prefixes.map(|at| (*at.get_ref(), at.span())),
        "neighbor range",
        problems,
    );
    let names = ranges
        .iter()
        .filter_map(|range| range.get_ref().name.as_ref());
    twice(
        names.map(|name| (name.get_ref(), name.span())),
        "the name",
        problems,
    );
    let mut sorted: Vec<&NeighborRange> = ranges.iter().map(Spanned::get_ref).collect();
    sorted.sort_by_key(|range| std::cmp::Reverse(range.prefix.get_ref().prefix_len()));
    sorted
        .into_iter()
        .map(|entry| range(entry, common, problems, notes))
        .collect()
}

fn peer(
    neighbor: &Neighbor,
    common: &Common,
    problems: &mut Problems<'_>,
    notes: &mut Vec<String>,
) -> PeerConfig {
    let address = *neighbor.address.get_ref();
    check_remote(&neighbor.address, problems);
    if let Some(port) = neighbor.port.as_ref().filter(|port| *port.get_ref() == 0) {
        problems.push(Problem::at(port.span(), "port 0 cannot be dialled"));
    }
    if let Some(source) = &neighbor.source {
        check_source(source, &neighbor.address, problems);
    }
    let name = name(neighbor.name.as_ref(), address, problems);
    let mut peer = common.peer(name, address, &neighbor.session(), problems, notes);
    peer.port = neighbor
        .port
        .as_ref()
        .map_or(peer.port, |port| *port.get_ref());
    peer.local = neighbor.source.as_ref().map(|source| *source.get_ref());
    peer.session.passive = neighbor.passive;
    peer
}

fn range(
    range: &NeighborRange,
    common: &Common,
    problems: &mut Problems<'_>,
    notes: &mut Vec<String>,
) -> RangeConfig {
    let given = *range.prefix.get_ref();
    let prefix = given.trunc();
    if prefix != given {
        let message = format!("{given} has host bits set");
        let problem = Problem::at(range.prefix.span(), message);
        problems.push(problem.label(format!("did you mean {prefix}?")));
    }
    if *range.limit.get_ref() == 0 {
        problems.push(
            Problem::at(range.limit.span(), "limit 0 admits nobody")
                .help("leave the range out, or give the most neighbours that may come from it"),
        );
    }
    let name = name(range.name.as_ref(), prefix, problems);
    let mut template = common.peer(
        name.clone(),
        prefix.addr(),
        &range.session(),
        problems,
        notes,
    );
    template.session.passive = true;
    RangeConfig {
        name,
        prefix: to_prefix(prefix),
        limit: *range.limit.get_ref(),
        awaited: true,
        template,
    }
}

fn to_prefix(net: IpNet) -> Prefix {
    match net {
        IpNet::V4(net) => Prefix::V4(net.into()),
        IpNet::V6(net) => Prefix::V6(net.into()),
    }
}

fn check_remote(address: &Spanned<IpAddr>, problems: &mut Problems<'_>) {
    unicast(*address.get_ref(), address.span(), problems);
    if matches!(address.get_ref(), IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        let message = "a link-local neighbour would need an interface, which is not supported";
        let problem = Problem::at(address.span(), message);
        problems.push(problem.help("use a global or unique local address"));
    }
}

fn check_source(source: &Spanned<IpAddr>, address: &Spanned<IpAddr>, problems: &mut Problems<'_>) {
    unicast(*source.get_ref(), source.span(), problems);
    if source.get_ref().is_ipv4() != address.get_ref().is_ipv4() {
        problems.push(
            Problem::at(
                source.span(),
                "source and address are of different IP versions",
            )
            .related(address.span(), "the neighbour's address"),
        );
    }
    if source.get_ref() == address.get_ref() {
        let message = "source and address are the same: a speaker is no neighbour of itself";
        problems.push(Problem::at(source.span(), message));
    }
}
