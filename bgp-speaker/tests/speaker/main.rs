//! Whole speakers, with scripted peers or with each other, in virtual time.

mod accounts;
mod add_path;
mod addresses;
mod awaited;
mod bounded;
mod changes;
mod cluster;
mod exchange;
mod extended;
mod give_way;
mod handshake;
mod helper;
mod identity;
mod long_lived;
mod long_lived_model;
mod memory;
mod monitor;
mod one_peer;
mod origins;
mod path_state;
mod prefix_limit;
mod refresh;
mod reload;
mod restarter;
mod route_targets;
mod sent_limit;
mod strict_mode;
mod wire;

use bgp_speaker::SpeakerConfig;
use testkit::Network;
use testkit::fixture::address;

/// Returns speakers by number; number `n` has the address 10.0.0.n.
fn network(configs: Vec<(usize, SpeakerConfig)>) -> Network {
    let mut network = Network::new(0);
    for (number, config) in configs {
        network.start(number, address(number).into(), config);
    }
    network
}
