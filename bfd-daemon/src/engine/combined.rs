//! The configuration of a session that several clients want.

use std::num::NonZeroU8;

use bfd::SessionConfig;
use bfd_client::Wanted;

use super::auth;

/// Returns the configuration that no client finds too slow. Packets are not accepted at a shorter interval
/// than `receive_us_min`.
///
/// # Errors
///
/// The keys are invalid.
pub(super) fn config_of<'w>(
    receive_us_min: u32,
    wanted: impl IntoIterator<Item = &'w Wanted>,
) -> Result<SessionConfig, String> {
    let all: Vec<&Wanted> = wanted.into_iter().collect();
    let least = |interval: fn(&Wanted) -> u32| {
        let least = all.iter().map(|one| interval(one)).min();
        least.map(|interval_ms| interval_ms.saturating_mul(1000))
    };
    let multiplier = all.iter().filter_map(|one| NonZeroU8::new(one.multiplier));
    let multiplier = multiplier.min();
    let auth = all.iter().find_map(|one| one.auth.as_ref());
    let authentication = auth.map(auth::of).transpose()?;
    Ok(SessionConfig::default().with(|config| {
        let (send, receive) = (least(|one| one.interval_ms), least(|one| one.receive_ms));
        let receive = receive.map(|interval| interval.max(receive_us_min));
        config.desired_min_tx_us = send.unwrap_or(config.desired_min_tx_us);
        config.required_min_rx_us = receive.unwrap_or(config.required_min_rx_us);
        config.idle_tx_us = least(|one| one.idle_ms).unwrap_or(config.idle_tx_us);
        config.detect_multiplier = multiplier.unwrap_or(config.detect_multiplier);
        // This process does not end with the daemons that route (RFC 5882 §4.3.2).
        config.control_plane_independent = true;
        config.authentication = authentication;
    }))
}
