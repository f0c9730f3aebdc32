//! `[[neighbor]]` and `[[neighbor_range]]`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp_proto::Prefix;
use bgp_speaker::{PeerConfig, RangeConfig, SpeakerConfig};
use daemon_common::config::Problems;
use rib::Role;

use crate::duplicates::twice;
use crate::section::{Section, problem};

/// The state while the sections of a file are read.
pub(crate) struct Reading<'r, 's> {
    /// The speaker, without neighbors.
    pub(crate) speaker: &'r SpeakerConfig,
    /// Whether the file has the speaker's AS. Without it every neighbor counts as internal, so that
    /// nothing is reported that may result from the missing AS.
    pub(crate) is_asn_known: bool,
    /// The local name in the OPEN.
    pub(crate) hostname: Option<&'r str>,
    /// The mistakes.
    pub(crate) problems: &'r mut Problems<'s>,
    /// Remarks on valid but notable configuration.
    pub(crate) notes: &'r mut Vec<String>,
}

impl Reading<'_, '_> {
    /// Returns the configured peers.
    pub(crate) fn peers(&mut self, neighbors: &[Section]) -> Vec<PeerConfig> {
        let addresses = neighbors.iter().filter_map(|neighbor| {
            let place = neighbor.0.place_of("address")?;
            Some((neighbor.address()?, place.clone()))
        });
        twice(addresses, "neighbor", self.problems);
        let mut seen: BTreeSet<IpAddr> = BTreeSet::new();
        let names = neighbors.iter().filter_map(|neighbor| {
            let address = neighbor.address()?;
            let first = seen.insert(address);
            match neighbor.text("name") {
                Some(name) => Some((name.to_owned(), neighbor.0.place_of("name")?.clone())),
                // The second section without a name was already reported for its address.
                None if first => {
                    Some((address.to_string(), neighbor.0.place_of("address")?.clone()))
                }
                None => None,
            }
        });
        twice(names, "the name", self.problems);
        let mut peers = Vec::new();
        for neighbor in neighbors {
            let mut faults = Vec::new();
            let speaker = self.speaker_of(neighbor);
            let mut peer = speaker.peer(&neighbor.0, &mut faults);
            faults
                .into_iter()
                .for_each(|fault| self.problems.push(problem(fault)));
            self.finish(neighbor, &mut peer);
            peers.push(peer);
        }
        peers
    }

    /// Returns the ranges, the most specific first, so that the first match for an address applies.
    pub(crate) fn ranges(&mut self, sections: &[Section]) -> Vec<RangeConfig> {
        let prefixes = sections.iter().filter_map(|range| {
            let place = range.0.place_of("prefix")?;
            Some((range.text("prefix")?.parse::<Prefix>().ok()?, place.clone()))
        });
        twice(prefixes, "neighbor range", self.problems);
        let names = sections
            .iter()
            .filter_map(|range| Some((range.text("name")?, range.0.place_of("name")?.clone())));
        twice(names, "the name", self.problems);
        let mut ranges = Vec::new();
        for section in sections {
            let mut faults = Vec::new();
            let speaker = self.speaker_of(section);
            let mut range = speaker.range(&section.0, &mut faults);
            faults
                .into_iter()
                .for_each(|fault| self.problems.push(problem(fault)));
            self.finish(section, &mut range.template);
            ranges.push(range);
        }
        ranges.sort_by_key(|range| std::cmp::Reverse(range.prefix.len()));
        ranges
    }

    /// Returns the speaker; without an AS of its own, with that of the neighbor.
    fn speaker_of(&self, section: &Section) -> Cow<'_, SpeakerConfig> {
        if self.is_asn_known {
            return Cow::Borrowed(self.speaker);
        }
        let mut speaker = self.speaker.clone();
        if let Some(asn) = section.asn() {
            speaker.local_asn = asn;
        }
        Cow::Owned(speaker)
    }

    fn finish(&mut self, section: &Section, peer: &mut PeerConfig) {
        peer.session.hostname = self.hostname.map(str::to_owned);
        if peer.role == Role::External {
            self.notes.extend(missing_policies(&peer.name, section));
        }
        if peer.prefix_limits.max() == 0 {
            self.notes.push(format!(
                "neighbor {}: prefix_limit = 0: the number of its routes is not limited",
                peer.name
            ));
        }
    }
}

fn missing_policies(name: &str, section: &Section) -> Option<String> {
    let missing = match (section.0.get("import"), section.0.get("export")) {
        (None, None) => "import and export",
        (None, Some(_)) => "import",
        (Some(_), None) => "export",
        (Some(_), Some(_)) => return None,
    };
    Some(format!(
        "neighbor {name}: external without {missing} policy: all routes are rejected there (RFC \
         8212); set import and export to \"accept\" or \"deny\""
    ))
}
