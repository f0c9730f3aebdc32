//! Decoding of received UPDATEs.

use anyhow::{Result, bail, ensure};

use super::mask;

/// A received UPDATE, split into its fields but not checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Update<'a> {
    /// Withdrawn IPv4 prefixes.
    pub withdrawn: &'a [u8],
    /// The attributes as received.
    pub attributes: &'a [u8],
    /// Announced IPv4 prefixes.
    pub announced: &'a [u8],
}

impl<'a> Update<'a> {
    /// Splits the body of an UPDATE.
    pub fn parse(body: &'a [u8]) -> Result<Self> {
        let (withdrawn, rest) = counted(body)?;
        let (attributes, announced) = counted(rest)?;
        Ok(Self {
            withdrawn,
            attributes,
            announced,
        })
    }
}

fn counted(octets: &[u8]) -> Result<(&[u8], &[u8])> {
    let Some(([high, low], rest)) = octets.split_first_chunk() else {
        bail!("an UPDATE that is too short");
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    ensure!(length <= rest.len(), "an UPDATE that is too short");
    Ok(rest.split_at(length))
}

/// The attributes of a received UPDATE, each value as received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received<'a> {
    /// ORIGIN.
    pub origin: Option<&'a [u8]>,
    /// AS_PATH.
    pub path: Option<&'a [u8]>,
    /// NEXT_HOP, or that of MP_REACH_NLRI.
    pub next_hop: Option<&'a [u8]>,
    /// MULTI_EXIT_DISC.
    pub med: Option<&'a [u8]>,
    /// LOCAL_PREF.
    pub local_pref: Option<&'a [u8]>,
    /// COMMUNITIES.
    pub communities: Option<&'a [u8]>,
    /// ORIGINATOR_ID.
    pub originator: Option<&'a [u8]>,
    /// CLUSTER_LIST.
    pub clusters: Option<&'a [u8]>,
    /// The IPv6 prefixes of MP_REACH_NLRI.
    pub announced_v6: &'a [u8],
    /// The IPv6 prefixes of MP_UNREACH_NLRI.
    pub withdrawn_v6: &'a [u8],
}

impl<'a> Received<'a> {
    /// Splits attributes.
    pub fn parse(mut octets: &'a [u8]) -> Result<Self> {
        let mut received = Self::default();
        while let [flags, kind, rest @ ..] = octets {
            let (length, rest) = match (flags & 0x10 != 0, rest) {
                (false, [length, rest @ ..]) => (usize::from(*length), rest),
                (true, [high, low, rest @ ..]) => {
                    (usize::from(u16::from_be_bytes([*high, *low])), rest)
                }
                _ => bail!("an attribute without its length"),
            };
            ensure!(length <= rest.len(), "an attribute {kind} that is too long");
            let (value, rest) = rest.split_at(length);
            octets = rest;
            received.take(*kind, value)?;
        }
        ensure!(octets.is_empty(), "octets after the attributes");
        Ok(received)
    }

    fn take(&mut self, kind: u8, value: &'a [u8]) -> Result<()> {
        let place = match kind {
            1 => &mut self.origin,
            2 => &mut self.path,
            3 => &mut self.next_hop,
            4 => &mut self.med,
            5 => &mut self.local_pref,
            8 => &mut self.communities,
            9 => &mut self.originator,
            10 => &mut self.clusters,
            14 => return self.reach(value),
            15 => {
                ensure!(
                    value.starts_with(&[0, 2, 1]),
                    "a family that was not negotiated"
                );
                self.withdrawn_v6 = &value[3..];
                return Ok(());
            }
            _ => bail!("an attribute {kind} that no generator sent"),
        };
        ensure!(place.is_none(), "attribute {kind} twice");
        *place = Some(value);
        Ok(())
    }

    fn reach(&mut self, value: &'a [u8]) -> Result<()> {
        let [0, 2, 1, length, rest @ ..] = value else {
            bail!("a family that was not negotiated");
        };
        let length = usize::from(*length);
        ensure!(length < rest.len(), "an MP_REACH_NLRI that is too short");
        self.next_hop = Some(&rest[..length]);
        // One reserved octet after the next hop.
        self.announced_v6 = &rest[length + 1..];
        Ok(())
    }
}

/// Reads prefixes of IPv4.
pub fn prefixes_v4(
    mut octets: &[u8],
    path_ids: bool,
    mut each: impl FnMut(u32, u8) -> Result<()>,
) -> Result<()> {
    while !octets.is_empty() {
        if path_ids {
            octets = octets.get(4..).unwrap_or_default();
        }
        let Some((length, rest)) = octets.split_first() else {
            bail!("a path identifier without a prefix");
        };
        let kept = usize::from(length.div_ceil(8));
        ensure!(kept <= 4 && kept <= rest.len(), "a prefix /{length}");
        // Four octets at once where as many remain, which is nearly always.
        let address = if let Some(four) = rest.first_chunk::<4>() {
            u32::from_be_bytes(*four) & mask(*length)
        } else {
            let mut four = [0; 4];
            four[..kept].copy_from_slice(&rest[..kept]);
            u32::from_be_bytes(four) & mask(*length)
        };
        each(address, *length)?;
        octets = &rest[kept..];
    }
    Ok(())
}

/// Reads prefixes of IPv6, which are all /64.
pub fn prefixes_v6(
    mut octets: &[u8],
    path_ids: bool,
    mut each: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    while !octets.is_empty() {
        if path_ids {
            octets = octets.get(4..).unwrap_or_default();
        }
        let Some((64, rest)) = octets.split_first() else {
            bail!("an IPv6 prefix that is no /64");
        };
        let Some((half, rest)) = rest.split_first_chunk() else {
            bail!("an IPv6 prefix that is too short");
        };
        each(u64::from_be_bytes(*half))?;
        octets = rest;
    }
    Ok(())
}
