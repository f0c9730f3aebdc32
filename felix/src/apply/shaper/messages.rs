//! The messages about queueing disciplines, filters and devices.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionGeneric, TcActionMirrorOption, TcActionOption,
    TcActionType, TcAttribute, TcFilterU32Option, TcMessage, TcMirror, TcMirrorActionType,
    TcOption, TcU32Key, TcU32Selector, TcU32SelectorFlags,
};

use crate::calc::{Bucket, Peak};
use crate::limits::{
    BANDWIDTH_DELAY, BANDWIDTH_QUEUE_OCTETS_MAX, BANDWIDTH_QUEUE_OCTETS_MIN, ETHERNET_HEADER_OCTETS,
};

/// `TC_H_ROOT`, `TC_H_INGRESS`.
pub(super) const ROOT: u32 = 0xffff_ffff;
pub(super) const INGRESS: u32 = 0xffff_fff1;
/// The handle of every ingress qdisc.
const INGRESS_HANDLE: u32 = 0xffff_0000;
/// The handle of Felix's buckets, `cab:`. The kernel selects handles from 8000: on.
pub(super) const OWN_HANDLE: u32 = 0x0cab_0000;
/// The priority of Felix's filters.
pub(super) const OWN_PRIORITY: u32 = 0x0cab;
/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;
/// `TCA_TBF_PARMS`, `TCA_TBF_RATE64`, `TCA_TBF_PRATE64`, `TCA_TBF_BURST`, `TCA_TBF_PBURST`.
const PARAMETERS: u16 = 1;
const RATE: u16 = 4;
const PEAK_RATE: u16 = 5;
const BURST: u16 = 6;
const PEAK_BURST: u16 = 7;
/// `TC_LINKLAYER_ETHERNET`.
const ETHERNET: u8 = 1;

/// Returns a message about a qdisc.
pub(super) fn qdisc(index: u32, parent: u32, handle: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = index.cast_signed();
    message.header.parent = parent.into();
    message.header.handle = handle.into();
    message
}

/// Returns the token bucket of a device. A burst has at least the octets of a packet of `mtu`, which
/// could otherwise never be sent.
pub(super) fn bucket(index: u32, bucket: Bucket, mtu: u32) -> TcMessage {
    let packet = mtu.saturating_add(ETHERNET_HEADER_OCTETS);
    let mut options = vec![
        DefaultNla::new(PARAMETERS, parameters(bucket)),
        DefaultNla::new(BURST, bucket.burst.max(packet).to_ne_bytes().into()),
    ];
    let wide = |kind, rate: u64| {
        let is_wide = rate > u32::MAX.into();
        is_wide.then(|| DefaultNla::new(kind, rate.to_ne_bytes().into()))
    };
    options.extend(wide(RATE, bucket.rate));
    if let Some(Peak { rate, burst }) = bucket.peak {
        let burst = burst.max(packet).to_ne_bytes();
        options.push(DefaultNla::new(PEAK_BURST, burst.into()));
        options.extend(wide(PEAK_RATE, rate));
    }
    let mut message = qdisc(index, ROOT, OWN_HANDLE);
    message.attributes = vec![
        TcAttribute::Kind("tbf".into()),
        TcAttribute::Options(options.into_iter().map(TcOption::Other).collect()),
    ];
    message
}

/// Returns `struct tc_tbf_qopt`. The bursts are attributes of their own.
fn parameters(bucket: Bucket) -> Vec<u8> {
    let spec = |rate: u64| {
        let rate = u32::try_from(rate).unwrap_or(u32::MAX);
        let mut octets = [0; 12];
        octets[1] = ETHERNET;
        octets[8..].copy_from_slice(&rate.to_ne_bytes());
        octets
    };
    let peak = bucket.peak.map_or([0; 12], |peak| spec(peak.rate));
    let limit = queue(bucket.rate).to_ne_bytes();
    // The times of the bursts, which the kernel computes itself.
    let times = [0; 8];
    [&spec(bucket.rate)[..], &peak, &limit, &times].concat()
}

/// Returns the octets of the queue of a rate.
fn queue(rate: u64) -> u32 {
    let octets = u128::from(rate) * BANDWIDTH_DELAY.as_millis() / 1000;
    let octets = u32::try_from(octets).unwrap_or(u32::MAX);
    octets.clamp(BANDWIDTH_QUEUE_OCTETS_MIN, BANDWIDTH_QUEUE_OCTETS_MAX)
}

/// Returns the qdisc of the packets that a device receives.
pub(super) fn ingress(index: u32) -> TcMessage {
    let mut message = qdisc(index, INGRESS, INGRESS_HANDLE);
    message.attributes = vec![TcAttribute::Kind("ingress".into())];
    message
}

/// Returns a message about all filters of the packets that a device receives.
pub(super) fn filters(index: u32) -> TcMessage {
    qdisc(index, INGRESS_HANDLE, 0)
}

/// Returns Felix's filter of the packets that a device receives; it redirects them to another device.
pub(super) fn filter(index: u32, to: Option<u32>) -> TcMessage {
    let mut message = filters(index);
    message.header.info = (OWN_PRIORITY << 16) | u32::from(ALL_PROTOCOLS.to_be());
    message.attributes = vec![TcAttribute::Kind("u32".into())];
    let Some(to) = to else {
        return message;
    };
    let mut generic = TcActionGeneric::default();
    generic.action = TcActionType::Stolen;
    let mut redirect = TcMirror::default();
    redirect.generic = generic;
    redirect.eaction = TcMirrorActionType::EgressRedir;
    redirect.ifindex = to;
    let redirect = TcActionOption::Mirror(TcActionMirrorOption::Parms(redirect));
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind("mirred".into()),
        TcActionAttribute::Options(vec![redirect]),
    ];
    // A key without a mask matches every packet.
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    let options = [
        TcFilterU32Option::Action(vec![action]),
        TcFilterU32Option::Selector(selector),
    ];
    let options = options.into_iter().map(TcOption::U32).collect();
    message.attributes.push(TcAttribute::Options(options));
    message
}

/// Returns a new device for the packets from the workload of an interface.
pub(super) fn device(name: &str, interface: &str, mtu: u32) -> LinkMessage {
    let mut message = up(0);
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::IfAlias(interface.to_owned()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
    ];
    message
}

/// Returns the message that sets a device up.
pub(super) fn up(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_has_the_octets_of_a_delay_within_its_bounds() {
        assert_eq!(queue(1), 128 * 1024);
        assert_eq!(queue(1_000_000_000), 25_000_000);
        assert_eq!(queue(u64::MAX), 64 * 1024 * 1024);
    }

    #[test]
    fn wide_rates_and_small_bursts_are_encoded() {
        let peak = Peak {
            rate: 1 << 33,
            burst: 1000,
        };
        let of = Bucket {
            rate: 1 << 32,
            burst: 125,
            peak: Some(peak),
        };
        let message = bucket(7, of, 1500);
        let Some(TcAttribute::Options(options)) = message.attributes.get(1) else {
            panic!("no options");
        };
        let other = |option: &TcOption| match option {
            TcOption::Other(attribute) => attribute.clone(),
            option => panic!("{option:?}"),
        };
        let found: Vec<DefaultNla> = options.iter().map(other).collect();
        let wanted = |kind, octets: &[u8]| DefaultNla::new(kind, octets.into());
        assert_eq!(
            found[1..],
            [
                wanted(BURST, &1514_u32.to_ne_bytes()),
                wanted(RATE, &(1_u64 << 32).to_ne_bytes()),
                wanted(PEAK_BURST, &1514_u32.to_ne_bytes()),
                wanted(PEAK_RATE, &(1_u64 << 33).to_ne_bytes()),
            ]
        );
    }
}
