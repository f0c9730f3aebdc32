//! Origin validation of a reflector, between a simulated datastore and its speaker, as the daemon's
//! driver does it.

use std::time::Duration;

use bgp_daemon::{Known, OriginWatch};
use bgp_speaker::Speaker;
use bgp_speaker::bgp_fsm::Instant;
use bgp_speaker::rib::OriginMode;
use calico_bgp::validation::OriginIndex;
use calico_store::{Change, KeyRange, Status, Update};

use crate::agenda::{At, Event};
use crate::limits::UPDATES_MAX;
use crate::store::Follower;
use crate::world::Cx;

/// The records of a reflector.
pub(crate) struct Origins {
    watch: OriginWatch,
    pub(crate) follower: Follower,
    is_complete: bool,
}

impl Origins {
    /// Lets a speaker that has not started use confirmed paths only.
    pub(crate) fn enforce(at: At, speaker: &mut Speaker, seed: u64, first_token: u64) -> Self {
        let watch = OriginWatch::new(seed, OriginMode::Enforce);
        watch.enforce(speaker);
        let prefixes = [
            OriginIndex::prefixes_of_nodes(),
            OriginIndex::prefixes_of_workloads(),
        ];
        let ranges = prefixes.into_iter().flatten().map(KeyRange::prefix);
        Self {
            watch,
            follower: Follower::new(at, ranges, seed, first_token),
            is_complete: false,
        }
    }

    /// Reads the datastore, and requests the evaluation of what has changed. Returns whether there
    /// is more to do.
    pub(crate) fn turn(&mut self, cx: &mut Cx<'_>, speaker: &mut Speaker) -> bool {
        let now = Duration::from_nanos(cx.now);
        let mirror = &mut self.follower.mirror;
        if mirror.poll_timeout(now).is_some_and(|at| at <= now) {
            mirror.handle_timeout(now);
        }
        for question in self.follower.questions() {
            let at = cx.now + cx.net.delay(cx.chance);
            cx.agenda.push(at, Event::Ask(question));
        }
        let updates = self.follower.mirror.take(now, UPDATES_MAX);
        let mut has_more = !updates.is_empty();
        let (now, mut completes) = (Instant(cx.now), false);
        for update in updates {
            match update {
                Update::Change(Change::Put(item)) => {
                    self.watch.take(now, &item.key, Some(&item.value));
                }
                Update::Change(Change::Delete(key)) => self.watch.take(now, &key, None),
                Update::Status(Status::InSync) => {
                    self.watch.begin(now, Known::All);
                    completes |= !std::mem::replace(&mut self.is_complete, true);
                }
                Update::Status(_) => {}
            }
        }
        let (looked, _) = self.watch.look(now, speaker);
        has_more |= looked.has_more;
        if completes {
            speaker.origins_complete();
        }
        has_more
    }

    /// Returns when the next turn is due without an event.
    pub(crate) fn timeout(&self, now: u64) -> Option<u64> {
        let mirror = self.follower.mirror.poll_timeout(Duration::from_nanos(now));
        let watch = self.watch.poll_timeout().map(|at| at.0);
        mirror
            .map(crate::time::nanos)
            .into_iter()
            .chain(watch)
            .min()
    }
}
