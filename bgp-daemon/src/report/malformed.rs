//! The malformed messages that a speaker keeps.

use std::fmt::Write;
use std::time::Duration;

use bgp_fsm::Instant;
use bgp_proto::AttrCode;
use bgp_speaker::Speaker;
use daemon_common::report::{Malformed, MalformedMessage};

/// Returns the last malformed messages, oldest first. `unix` is the time of day at `now`.
pub fn malformed(speaker: &Speaker, now: Instant, unix: Duration) -> Malformed {
    let messages = speaker.malformed().map(|kept| {
        let ago = now.saturating_duration_since(kept.at);
        MalformedMessage {
            time_s: unix.saturating_sub(ago).as_secs(),
            neighbor: kept.peer.clone(),
            fault: kept.fault.kind.slug().to_owned(),
            attribute: attribute(kept.fault.attr),
            at: kept.fault.at,
            text: kept.fault.to_string(),
            remedy: kept.remedy.to_string(),
            octets: hex(&kept.body),
            octets_total: kept.octets as u64,
        }
    });
    Malformed {
        messages: messages.collect(),
    }
}

fn attribute(code: AttrCode) -> Option<String> {
    (code != AttrCode::None).then(|| code.to_string())
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}
