//! The blind relay: this program with a subcommand.

use super::Scene;

pub(super) fn arguments(scene: &Scene) -> Vec<String> {
    let words = ["relay", &scene.address.to_string(), &scene.asn.to_string()];
    words.map(str::to_owned).to_vec()
}
