//! Translations of addresses as texts: equal translations have equal texts.

use std::net::IpAddr;

/// Returns the text of a translation. Without an address, it is that of the outgoing interface.
pub fn translation(
    is_destination: bool,
    address: Option<IpAddr>,
    ports: Option<(u64, u64)>,
) -> String {
    let end = if is_destination {
        "destination"
    } else {
        "source"
    };
    let address = address.map_or_else(
        || "the address of the outgoing interface".to_owned(),
        |address| address.to_string(),
    );
    let ports = match ports {
        None => String::new(),
        Some((first, last)) if first == last => format!(" port {first}"),
        Some((first, last)) => format!(" port {first}-{last}"),
    };
    format!("translate the {end} to {address}{ports}")
}
