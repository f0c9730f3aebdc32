//! Events of single routes as a driver: it reads the logs of changes while a reader of events
//! watches, and costs a look at a number each round while none does.

#[cfg(test)]
mod tests;

use bgp_io::Speaker;
use bgp_io::bgp_proto::{Family, Net, Prefix};
use bgp_io::bgp_speaker::ReaderId;
use bgp_io::rib::{
    Budget, Change, GroupId, PeerId, PolicyDirection, PrefixRange, PrefixSet, Progress,
    RejectedPath, Route, Step,
};
use daemon_common::events::{self, Event, Text, Watched};
use ipnet::IpNet;

use crate::limits::ROUTE_EVENTS_TURN_MAX;
use crate::{Driver, DriverError, Round, Settings};

const CHOSEN: &str = "route.chosen";
const WITHDRAWN: &str = "route.withdrawn";
const FILTERED: &str = "route.filtered";
const EXPORT_FILTERED: &str = "route.export_filtered";

/// The events of rejected paths, and the policies that reject them.
const REJECTIONS: [(&str, PolicyDirection); 2] = [
    (FILTERED, PolicyDirection::Import),
    (EXPORT_FILTERED, PolicyDirection::Export),
];

/// Reports best paths and rejected paths to the readers that watch them.
///
/// It is a value without I/O: [`look`](Self::look) reads changes from a speaker.
#[derive(Debug)]
pub struct RouteEvents {
    /// The watched prefixes, with their generation.
    watched: (u64, Watched),
    /// Its position in the logs of changes, while best paths are watched.
    reader: Option<ReaderId>,
    /// Changes that are reported as missing.
    missed: u64,
}

/// The result of a look at a speaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Whether it has read something.
    pub has_read: bool,
    /// Whether there is more to read.
    pub has_more: bool,
}

impl<S: Settings> Driver<S> for RouteEvents {
    async fn wait(&mut self) {
        events::watches_changed().await;
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        let mut looked = Looked::default();
        round.io.read_with(|speaker| {
            looked = self.look(speaker);
            looked.has_read
        });
        if looked.has_more {
            round.more();
        }
        Ok(())
    }
}

impl RouteEvents {
    /// Creates a driver that watches nothing yet.
    pub fn new() -> Self {
        events::offer(&[CHOSEN, WITHDRAWN, FILTERED, EXPORT_FILTERED]);
        Self {
            watched: (0, Watched::default()),
            reader: None,
            missed: 0,
        }
    }

    /// Reports the changes since the last look, within one bounded step.
    pub fn look(&mut self, speaker: &mut Speaker) -> Looked {
        if events::watched_generation() != self.watched.0 {
            self.take_over(speaker);
        }
        let mut looked = Looked::default();
        for (name, by) in REJECTIONS {
            if speaker.rib().watches_rejected(by) {
                looked.has_read |= report_rejected(speaker, name, by);
            }
        }
        if let Some(reader) = self.reader {
            for family in speaker.config().families.iter() {
                let of_family = self.read(speaker, reader, family);
                looked.has_read |= of_family.has_read;
                looked.has_more |= of_family.has_more;
            }
        }
        looked
    }

    /// Starts reading what is newly watched, and stops reading what is no longer watched.
    fn take_over(&mut self, speaker: &mut Speaker) {
        self.watched = events::take_watched();
        let watched = &self.watched.1;
        let has_reader = watched.has(CHOSEN) || watched.has(WITHDRAWN);
        match self.reader {
            None if has_reader => {
                self.reader = Some(speaker.add_follower());
                self.missed = 0;
            }
            Some(reader) if !has_reader => {
                speaker.remove_reader(reader);
                self.reader = None;
            }
            _ => {}
        }
        for (name, by) in REJECTIONS {
            match watched.has(name) {
                true => speaker.watch_rejected(by, watched.prefixes(name).map(inside)),
                false => speaker.unwatch_rejected(by),
            }
        }
    }

    /// Reports changes of best paths in one family.
    fn read(&mut self, speaker: &mut Speaker, reader: ReaderId, family: Family) -> Looked {
        let watched = &self.watched.1;
        let mut has_read = false;
        let mut changes = Vec::new();
        let budget = Budget(ROUTE_EVENTS_TURN_MAX);
        let progress = speaker.read(reader, family, budget, &mut |change| {
            has_read = true;
            let name = match change.route {
                Some(_) => CHOSEN,
                None => WITHDRAWN,
            };
            if watched.wants(name, prefix_of(change.net)) {
                changes.push(Changed::new(&change));
            }
        });
        let missed = speaker.missed(reader);
        if missed > self.missed {
            events::emit_missed(&[CHOSEN, WITHDRAWN], missed - self.missed);
            self.missed = missed;
        }
        for change in changes {
            change.report(speaker, family);
        }
        Looked {
            has_read,
            has_more: progress != Progress::Done,
        }
    }
}

impl Default for RouteEvents {
    fn default() -> Self {
        Self::new()
    }
}

/// The identification of a route in an event.
struct Destination {
    prefix: Option<IpNet>,
    nlri: Option<Text>,
}

impl Destination {
    fn new(net: Net<'_>) -> Self {
        let prefix = prefix_of(net);
        let nlri = prefix.is_none().then(|| Text::new(net));
        Self { prefix, nlri }
    }
}

/// A prefix with another best path, or without one.
struct Changed {
    destination: Destination,
    best: Option<Best>,
}

/// A best path.
struct Best {
    peer: PeerId,
    next_hop: Option<Text>,
    paths: u64,
    next_best_lost: Option<Step>,
}

impl Best {
    fn new(route: &Route<'_>) -> Self {
        let path = route.best();
        Self {
            peer: path.peer,
            next_hop: path.attributes.next_hop.as_ref().map(Text::new),
            paths: route.paths_len() as u64,
            next_best_lost: route.next_best_lost(),
        }
    }
}

impl Changed {
    fn new(change: &Change<'_>) -> Self {
        Self {
            destination: Destination::new(change.net),
            best: change.route.as_ref().map(Best::new),
        }
    }

    fn report(self, speaker: &Speaker, family: Family) {
        let Self { destination, best } = self;
        let Destination { prefix, nlri } = destination;
        let family = Text::new(family);
        match best {
            None => events::emit_watched(WITHDRAWN, prefix, || Event::RouteWithdrawn {
                prefix,
                nlri,
                family,
            }),
            Some(best) => events::emit_watched(CHOSEN, prefix, || Event::RouteChosen {
                prefix,
                nlri,
                family,
                neighbor: neighbor(speaker, best.peer),
                address: speaker.peer_config(best.peer).map(|config| config.remote),
                next_hop: best.next_hop,
                paths: best.paths,
                next_best_lost: best.next_best_lost.map(Text::new),
            }),
        }
    }
}

/// Reports paths that policies rejected; returns whether there were any.
fn report_rejected(speaker: &mut Speaker, name: &str, by: PolicyDirection) -> bool {
    let mut has_read = false;
    // At most as many as the tables record, and none is added in between.
    while let Some((lost, path)) = speaker.poll_rejected(by) {
        has_read = true;
        if lost > 0 {
            events::emit_missed(&[name], lost);
        }
        match path.group {
            None => report_filtered(speaker, &path),
            Some(group) => report_export_filtered(speaker, &path, group),
        }
    }
    has_read
}

fn report_filtered(speaker: &Speaker, path: &RejectedPath) {
    let prefix = prefix_of(path.net());
    events::emit_watched(FILTERED, prefix, || {
        let Destination { prefix, nlri } = Destination::new(path.net());
        Event::RouteFiltered {
            prefix,
            nlri,
            family: Text::new(path.family),
            neighbor: neighbor(speaker, path.peer),
            address: speaker.peer_config(path.peer).map(|config| config.remote),
            path_id: (path.path_id != 0).then_some(path.path_id.into()),
            policy: path.evaluation.as_ref().map(Text::new),
        }
    });
}

/// Reports a path that is not advertised to the neighbors of an update group. Its source is not one of
/// them: a path is never sent back.
fn report_export_filtered(speaker: &Speaker, path: &RejectedPath, group: GroupId) {
    let (to_count, receivers) = speaker.receivers(group, path.family, path.peer);
    if to_count == 0 {
        return;
    }
    let prefix = prefix_of(path.net());
    events::emit_watched(EXPORT_FILTERED, prefix, || {
        let Destination { prefix, nlri } = Destination::new(path.net());
        Event::RouteExportFiltered {
            prefix,
            nlri,
            family: Text::new(path.family),
            neighbor: neighbor(speaker, path.peer),
            address: speaker.peer_config(path.peer).map(|config| config.remote),
            path_id: (path.path_id != 0).then_some(path.path_id.into()),
            to: Text::listed(receivers.map(|peer| speaker.peer_name(peer))),
            to_count: to_count as u64,
            policy: path.evaluation.as_ref().map(Text::new),
        }
    });
}

fn neighbor(speaker: &Speaker, peer: PeerId) -> Text {
    Text::new(match peer {
        PeerId::LOCAL => "local",
        peer => speaker.peer_name(peer),
    })
}

fn prefix_of(net: Net<'_>) -> Option<IpNet> {
    Some(match net {
        Net::V4(prefix) => IpNet::V4(prefix.into()),
        Net::V6(prefix) => IpNet::V6(prefix.into()),
        Net::Opaque(_) => return None,
    })
}

/// Returns the set of prefixes and all prefixes inside them.
fn inside(prefixes: Vec<IpNet>) -> PrefixSet {
    let prefixes = prefixes.into_iter().map(|prefix| match prefix {
        IpNet::V4(prefix) => Prefix::V4(prefix.into()),
        IpNet::V6(prefix) => Prefix::V6(prefix.into()),
    });
    prefixes.map(PrefixRange::inside).collect()
}
