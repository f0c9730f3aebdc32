//! Which octets of an opaque NLRI identify the route.

use alloc::vec::Vec;

use crate::family::{FamilyRow, KeyRule};

/// Octets of an MPLS label with its traffic class and bottom-of-stack bit.
const LABEL_OCTETS: usize = 3;

impl FamilyRow {
    /// Appends to `out` the octets of one NLRI (as in [`Net::Opaque`](crate::Net::Opaque)) that
    /// identify the route in this family. Two NLRI are the same route if and only if their keys are
    /// equal. An NLRI that does not match its framing is its own key.
    pub fn key(&self, octets: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let done = match self.key {
            KeyRule::Whole => None,
            KeyRule::AfterLabel => after_label(octets, out),
            KeyRule::Evpn => evpn(octets, out),
        };
        if done.is_none() {
            out.truncate(start);
            out.extend_from_slice(octets);
        }
        if done.is_none() && self.is_counted_in_bits() {
            clear_host_bits(octets, out);
        }
    }

    const fn is_counted_in_bits(&self) -> bool {
        use crate::family::Framing;
        matches!(
            self.framing,
            Framing::Ipv4 | Framing::Ipv6 | Framing::Bits { .. } | Framing::RouteTarget
        )
    }
}

/// Drops the label and counts the bits without it. There is exactly one label, whatever its
/// bottom-of-stack bit is, because this speaker never advertises the Multiple Labels capability
/// (RFC 8277 §2.2, §2.4).
fn after_label(octets: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (bits, rest) = octets.split_first()?;
    let rest = rest.get(LABEL_OCTETS..)?;
    let bits = bits.checked_sub(LABEL_OCTETS as u8 * 8)?;
    out.push(bits);
    out.extend_from_slice(rest);
    mask_last(bits, out);
    Some(())
}

/// Clears the bits beyond the bit count in the last octet of a complete NLRI.
fn clear_host_bits(octets: &[u8], out: &mut [u8]) {
    if let (Some(bits), true) = (octets.first(), octets.len() > 1) {
        mask_last(*bits, out);
    }
}

fn mask_last(bits: u8, out: &mut [u8]) {
    if let (spare @ 1..=7, Some(last)) = ((8 - bits % 8) % 8, out.last_mut()) {
        *last &= 0xff << spare;
    }
}

/// Route distinguisher and Ethernet segment identifier, in octets (RFC 7432 §7).
const RD_OCTETS: usize = 8;
const ESI_OCTETS: usize = 10;
const TAG_OCTETS: usize = 4;
const MAC_OCTETS: usize = 6;

fn evpn(octets: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (head, value) = octets.split_at_checked(2)?;
    let kind = *head.first()?;
    let after_esi = RD_OCTETS + ESI_OCTETS;
    match kind {
        // RFC 7432 §7.1: the label is not part of the key, the segment identifier is.
        1 => {
            out.push(kind);
            out.extend_from_slice(value.get(..after_esi + TAG_OCTETS)?);
        }
        // RFC 7432 §7.2: tag, MAC and IP with their lengths.
        2 => {
            let ip_len_at = after_esi + TAG_OCTETS + 1 + MAC_OCTETS;
            let ip_octets = usize::from(*value.get(ip_len_at)?) / 8;
            out.push(kind);
            out.extend_from_slice(value.get(..RD_OCTETS)?);
            out.extend_from_slice(value.get(after_esi..ip_len_at + 1 + ip_octets)?);
        }
        // RFC 9136 §3.1: tag, prefix length and prefix; the total length (34 or 58) decides the IP
        // version.
        5 => {
            let ip_octets = match value.len() {
                34 => 4,
                58 => 16,
                _ => return None,
            };
            out.push(kind);
            out.extend_from_slice(value.get(..RD_OCTETS)?);
            out.extend_from_slice(value.get(after_esi..after_esi + TAG_OCTETS + 1 + ip_octets)?);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::Family;
    use alloc::vec;
    use alloc::vec::Vec;

    fn key(family: Family, octets: &[u8]) -> Vec<u8> {
        let mut out = vec![0xee];
        family.row().unwrap().key(octets, &mut out);
        assert_eq!(out[0], 0xee, "appends only");
        out.split_off(1)
    }

    #[test]
    fn a_withdrawal_has_the_key_of_its_route() {
        let reach = [96, 0x00, 0x06, 0x41, 0, 0, 0, 1, 0, 0, 0, 2, 10];
        let unreach = [96, 0x80, 0x00, 0x00, 0, 0, 0, 1, 0, 0, 0, 2, 10];
        assert_eq!(
            key(Family::IPV4_VPN, &reach),
            key(Family::IPV4_VPN, &unreach)
        );
        let other = [96, 0x80, 0x00, 0x00, 0, 0, 0, 1, 0, 0, 0, 3, 10];
        assert_ne!(key(Family::IPV4_VPN, &reach), key(Family::IPV4_VPN, &other));
        let lu = [24 + 12, 0, 0, 0x11, 10, 0x1f];
        assert_eq!(key(Family::IPV4_LABELED_UNICAST, &lu), [12, 10, 0x10]);
    }

    #[test]
    fn evpn_keys_leave_labels_and_segments_out() {
        let mac_ip = |esi: u8, mac: u8, label: u8| {
            let mut value = vec![2, 0];
            value.extend_from_slice(&[1; 8]);
            value.extend_from_slice(&[esi; 10]);
            value.extend_from_slice(&[0, 0, 0, 5, 48]);
            value.extend_from_slice(&[mac; 6]);
            value.extend_from_slice(&[32, 10, 0, 0, 1, 0, 0, label]);
            value[1] = value.len() as u8 - 2;
            value
        };
        let family = Family::L2VPN_EVPN;
        assert_eq!(key(family, &mac_ip(0, 2, 3)), key(family, &mac_ip(9, 2, 4)));
        assert_ne!(key(family, &mac_ip(0, 2, 3)), key(family, &mac_ip(0, 3, 3)));

        let prefix = |esi: u8, gateway: u8, len: u8| {
            let mut value = vec![5, 34];
            value.extend_from_slice(&[1; 8]);
            value.extend_from_slice(&[esi; 10]);
            value.extend_from_slice(&[0, 0, 0, 0, len, 10, 0, 0, 0, gateway, 0, 0, 1, 0, 0, 1]);
            value
        };
        assert_eq!(
            key(family, &prefix(0, 1, 24)),
            key(family, &prefix(1, 2, 24))
        );
        assert_ne!(
            key(family, &prefix(0, 1, 24)),
            key(family, &prefix(0, 1, 25))
        );
    }

    #[test]
    fn a_broken_nlri_is_its_own_key() {
        assert_eq!(key(Family::L2VPN_EVPN, &[2, 3, 1, 2, 3]), [2, 3, 1, 2, 3]);
        assert_eq!(key(Family::IPV4_VPN, &[8, 1]), [8, 1]);
        assert_eq!(key(Family::IPV4_VPN, &[]), []);
    }
}
