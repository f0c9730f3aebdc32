//! Decides whether the controller may delete resources: only if the API server is the one that is
//! stored, and has not lost objects.
//!
//! The UID of the namespace `kube-system` identifies a cluster. Together with the newest revision of
//! each kind it is stored in the datastore. A server that was created again has another UID. One that
//! was restored from a backup has the same UID, and older revisions. In both cases objects may be
//! missing that no user has deleted, so deletions are held until an operator confirms the server.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::kinds::Watched;
use crate::limits::{RECORD_LAG_MAX, REVISION_JUMP_MAX, UID_CHARACTERS_MAX};

/// The prefix of the controller's own keys.
pub const KEYS_PREFIX: &str = "/cambric/kubernetes/v1/";

/// The key of the [`Record`].
pub const SERVER_KEY: &str = "/cambric/kubernetes/v1/server";

/// The key with which an operator confirms a server. Its value is the UID of its `kube-system`.
pub const CONFIRMED_KEY: &str = "/cambric/kubernetes/v1/confirmed";

/// The stored identity of an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The UID of its namespace `kube-system`.
    pub uid: String,
    /// The newest revision by the name of the kind.
    #[serde(default)]
    pub revisions: BTreeMap<String, u64>,
    /// Why deletions are held, if they are. A restart of the controller does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// Why deletions are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The namespaces have not been listed yet.
    Incomplete,
    /// The server has no namespace `kube-system`.
    NoIdentity,
    /// No server was confirmed before, and resources would be deleted.
    Unconfirmed,
    /// The server has another UID.
    OtherServer,
    /// A list is older than a known one.
    OlderRevision {
        /// The kind.
        watched: Watched,
        /// The revision of the list.
        found: u64,
        /// The known one.
        known: u64,
    },
    /// A revision is far above the known one.
    RevisionJump {
        /// The kind.
        watched: Watched,
        /// The revision of the list or event.
        found: u64,
        /// The known one.
        known: u64,
    },
    /// A list lacks many objects.
    Losses {
        /// The kind.
        watched: Watched,
        /// The number of resources without an object.
        missing: usize,
        /// The number of resources.
        all: usize,
    },
    /// The reason is that of an earlier run.
    Earlier(String),
    /// The record in the datastore is invalid.
    InvalidRecord,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete => f.write_str("the namespaces have not been listed yet"),
            Self::NoIdentity => f.write_str("the API server has no namespace kube-system"),
            Self::Unconfirmed => {
                f.write_str("no API server was confirmed yet, and resources would be deleted")
            }
            Self::OtherServer => {
                f.write_str("the API server is another one: its kube-system has another UID")
            }
            Self::OlderRevision {
                watched,
                found,
                known,
            } => write!(
                f,
                "the API server was restored: {watched} list of revision {found}, known {known}"
            ),
            Self::RevisionJump {
                watched,
                found,
                known,
            } => write!(
                f,
                "the API server was restored: {watched} revision {found} is far above {known}"
            ),
            Self::Losses {
                watched,
                missing,
                all,
            } => write!(
                f,
                "the {watched} list lacks the objects of {missing} of {all} resources"
            ),
            Self::Earlier(reason) => f.write_str(reason),
            Self::InvalidRecord => write!(f, "the value of {SERVER_KEY} is invalid"),
        }
    }
}

impl Held {
    /// Returns whether an operator must confirm the server.
    pub const fn needs_confirmation(&self) -> bool {
        !matches!(self, Self::Incomplete | Self::NoIdentity)
    }
}

/// Returns whether a text has the form of a UID. It is part of a command that operators copy.
pub(crate) fn is_uid(text: &str) -> bool {
    let fits = |octet: u8| matches!(octet, b'0'..=b'9' | b'a'..=b'f' | b'-');
    (1..=UID_CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// The state of the server, and the record of it.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// The UID of `kube-system` in the present list of namespaces.
    uid: Option<String>,
    /// The newest revision of each kind that was read in this run.
    revisions: BTreeMap<Watched, u64>,
    /// The record in the datastore; `None` while there is none.
    record: Option<Record>,
    /// Why deletions are held until a confirmation.
    alarm: Option<Held>,
}

impl Guard {
    /// Sets the record that is stored, or the invalid value.
    pub fn set_record(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.record = None;
            return;
        };
        match serde_json::from_slice::<Record>(value) {
            Ok(record) => {
                let is_first = self.record.is_none();
                // Only a confirmation ends a stored hold: the leader has carried it out. An alarm with
                // another reason is newer, and stays.
                let held = self.record.as_ref().and_then(|known| known.held.clone());
                if record.held.is_none()
                    && held.is_some()
                    && held == self.alarm.as_ref().map(ToString::to_string)
                {
                    self.alarm = None;
                }
                if let (Some(reason), None) = (&record.held, &self.alarm) {
                    self.alarm = Some(Held::Earlier(reason.clone()));
                }
                self.record = Some(record);
                self.compare_all();
                if is_first {
                    self.look_for_jumps();
                }
            }
            Err(_) => self.alarm = Some(Held::InvalidRecord),
        }
    }

    /// Sets the UID of `kube-system`, after each change of the namespaces.
    pub fn set_uid(&mut self, uid: Option<&str>) {
        self.uid = uid.filter(|uid| is_uid(uid)).map(str::to_owned);
        self.compare_all();
    }

    /// Records the revision of a list.
    pub fn listed(&mut self, watched: Watched, revision: u64) {
        let known = self.known(watched);
        if revision < known {
            self.raise(Held::OlderRevision {
                watched,
                found: revision,
                known,
            });
        }
        self.look_for_jump(watched, revision, known);
        self.revisions.insert(watched, revision);
    }

    /// Records the revision of an event.
    pub fn reached(&mut self, watched: Watched, revision: u64) {
        self.look_for_jump(watched, revision, self.known(watched));
        let newest = self.revisions.entry(watched).or_default();
        *newest = revision.max(*newest);
    }

    /// A server that was restored with a revision bump has a far greater revision.
    fn look_for_jump(&mut self, watched: Watched, found: u64, known: u64) {
        if known > 0 && found > known.saturating_add(REVISION_JUMP_MAX) {
            self.raise(Held::RevisionJump {
                watched,
                found,
                known,
            });
        }
    }

    fn look_for_jumps(&mut self) {
        for (watched, found) in self.revisions.clone() {
            self.look_for_jump(watched, found, self.recorded(watched));
        }
    }

    /// Returns the stored revision of a kind; zero if the kind was never recorded.
    fn recorded(&self, watched: Watched) -> u64 {
        let record = self.record.as_ref();
        let stored = record.and_then(|record| record.revisions.get(watched.name()));
        stored.copied().unwrap_or_default()
    }

    /// Returns whether a list of the kind was recorded before.
    pub fn has_recorded(&self, watched: Watched) -> bool {
        self.recorded(watched) > 0
    }

    /// Returns whether the stored revisions lack a kind, or are far behind.
    pub fn is_record_behind(&self) -> bool {
        let is_behind = |(watched, found): (&Watched, &u64)| {
            let stored = self.recorded(*watched);
            stored == 0 || *found > stored.saturating_add(RECORD_LAG_MAX)
        };
        self.record.is_some() && self.alarm.is_none() && self.revisions.iter().any(is_behind)
    }

    /// Returns the newest known revision of a kind.
    fn known(&self, watched: Watched) -> u64 {
        let read = self.revisions.get(&watched).copied();
        self.recorded(watched).max(read.unwrap_or_default())
    }

    /// Keeps the first reason. That the server is another one explains its older revisions.
    pub(crate) fn raise(&mut self, alarm: Held) {
        let is_better = match (&self.alarm, &alarm) {
            (None, _) => true,
            (Some(Held::OtherServer), _) => false,
            (Some(_), Held::OtherServer) => true,
            (Some(_), _) => false,
        };
        if is_better {
            self.alarm = Some(alarm);
        }
    }

    fn compare_all(&mut self) {
        let Some(record) = self.record.clone() else {
            return;
        };
        if self.uid.as_ref().is_some_and(|uid| *uid != record.uid) {
            self.raise(Held::OtherServer);
        }
        for (watched, found) in self.revisions.clone() {
            let known = record.revisions.get(watched.name()).copied();
            if let Some(known) = known.filter(|known| found < *known) {
                self.raise(Held::OlderRevision {
                    watched,
                    found,
                    known,
                });
            }
        }
    }

    /// Returns why nothing may be deleted now. `would_delete`: whether there is anything to delete.
    pub fn held(&self, would_delete: bool) -> Option<Held> {
        match (&self.alarm, &self.uid, &self.record) {
            (Some(alarm), _, _) => Some(alarm.clone()),
            (None, None, _) => Some(Held::NoIdentity),
            (None, Some(_), None) if would_delete => Some(Held::Unconfirmed),
            (None, Some(_), _) => None,
        }
    }

    /// Returns whether a server with this UID is the known one. It is asked again before a deletion.
    pub fn verify(&mut self, uid: &str) -> bool {
        let is_known = self.record.as_ref().is_some_and(|known| known.uid == uid);
        if !is_known && self.record.is_some() {
            self.raise(Held::OtherServer);
        }
        is_known
    }

    /// Returns whether existing resources may be replaced: the server is the known one, or the first.
    pub fn may_replace(&self) -> bool {
        let is_known = |record: &Record| self.uid.as_ref() == Some(&record.uid);
        let is_other = matches!(self.alarm, Some(Held::OtherServer | Held::InvalidRecord));
        !is_other && self.uid.is_some() && self.record.as_ref().is_none_or(is_known)
    }

    /// Returns the UID of the server that can be confirmed.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Accepts the present server, if the text of an operator names it. Returns whether it does.
    pub fn confirm(&mut self, text: &str) -> bool {
        let names = |uid: &String| *uid == text.trim();
        if !self.uid.as_ref().is_some_and(names) {
            return false;
        }
        self.alarm = None;
        self.record = None;
        true
    }

    /// Returns the record to store: that of the present server. While deletions are held, it is the
    /// stored one with the reason.
    pub fn next_record(&self) -> Option<Record> {
        if let (Some(alarm), Some(record)) = (&self.alarm, &self.record) {
            return Some(Record {
                held: Some(alarm.to_string()),
                ..record.clone()
            });
        }
        if self.alarm.is_some() {
            return None;
        }
        let uid = self.uid.clone()?;
        let known = |watched: &Watched| (watched.name().to_owned(), self.known(*watched));
        Some(Record {
            uid,
            revisions: self.revisions.keys().map(known).collect(),
            held: None,
        })
    }

    /// Returns the stored record.
    pub const fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the guard of a known server with policies of revision 200.
    fn known() -> Guard {
        let mut guard = Guard::default();
        guard.set_record(Some(
            br#"{"uid": "a", "revisions": {"NetworkPolicy": 200}}"#,
        ));
        guard
    }

    fn known_server() -> Guard {
        let mut guard = known();
        guard.set_uid(Some("a"));
        guard.listed(Watched::NetworkPolicy, 200);
        guard
    }

    fn stored(guard: &Guard) -> Vec<u8> {
        serde_json::to_vec(&guard.next_record().expect("a record")).expect("JSON")
    }

    #[test]
    fn known_server_may_delete() {
        let mut guard = known();
        assert_eq!(guard.held(true), Some(Held::NoIdentity));
        guard.set_uid(Some("a"));
        guard.listed(Watched::NetworkPolicy, 200);
        assert_eq!(guard.held(true), None);
        assert!(guard.verify("a"));
        guard.reached(Watched::NetworkPolicy, 210);
        guard.listed(Watched::NetworkPolicy, 210);
        assert_eq!(guard.held(true), None);
        assert_eq!(
            guard.next_record().expect("a record").revisions["NetworkPolicy"],
            210
        );
    }

    #[test]
    fn confirmation_by_the_leader_ends_the_hold_of_others() {
        let follower = |uid: &str| {
            let mut guard = known_server();
            guard.set_uid(Some(uid));
            let held = stored(&guard);
            guard.set_record(Some(&held));
            guard
        };
        let confirmed = br#"{"uid": "b", "revisions": {"NetworkPolicy": 200}}"#;
        let mut same = follower("b");
        assert_eq!(same.held(true), Some(Held::OtherServer));
        same.set_record(Some(confirmed));
        assert_eq!(same.held(true), None);
        // This replica is connected to another server than the leader.
        let mut other = follower("c");
        other.set_record(Some(confirmed));
        assert_eq!(other.held(true), Some(Held::OtherServer));
        // A newer alarm is not that of the stored hold.
        let mut newer = follower("b");
        newer.alarm = Some(Held::InvalidRecord);
        newer.set_record(Some(confirmed));
        assert_eq!(newer.held(true), Some(Held::InvalidRecord));
    }

    #[test]
    fn revision_far_above_the_known_one_is_held() {
        let bumped = 1_000_000_200;
        let is_jump = |guard: &Guard| matches!(guard.held(true), Some(Held::RevisionJump { .. }));
        let mut listed = known();
        listed.set_uid(Some("a"));
        listed.listed(Watched::NetworkPolicy, bumped);
        assert!(is_jump(&listed));
        let mut reached = known();
        reached.set_uid(Some("a"));
        reached.reached(Watched::NetworkPolicy, bumped);
        assert!(is_jump(&reached));
        // The list is read before the record.
        let mut late = Guard::default();
        late.set_uid(Some("a"));
        late.listed(Watched::NetworkPolicy, bumped);
        late.set_record(Some(&stored(&known_server())));
        assert!(is_jump(&late));
        assert!(late.confirm("a"));
        late.set_record(Some(&stored(&late)));
        assert_eq!(late.held(true), None);
    }

    #[test]
    fn kind_that_was_never_listed_is_not_recorded() {
        let mut guard = known_server();
        assert!(guard.has_recorded(Watched::NetworkPolicy));
        assert!(!guard.has_recorded(Watched::Pod));
        assert!(!guard.is_record_behind());
        guard.listed(Watched::Pod, 300);
        assert!(guard.is_record_behind());
        guard.set_record(Some(&stored(&guard)));
        assert!(guard.has_recorded(Watched::Pod) && !guard.is_record_behind());
        guard.reached(Watched::Pod, 300 + RECORD_LAG_MAX + 1);
        assert!(guard.is_record_behind());
    }

    #[test]
    fn first_server_is_confirmed_unless_it_would_delete() {
        let mut guard = Guard::default();
        guard.set_uid(Some("a"));
        assert_eq!(guard.held(false), None);
        assert_eq!(guard.held(true), Some(Held::Unconfirmed));
        assert!(!guard.verify("a"), "nothing is known yet");
        assert!(guard.confirm("a\n"));
        guard.set_record(Some(&stored(&guard)));
        assert_eq!(guard.held(true), None);
    }

    #[test]
    fn other_server_is_held_until_it_is_confirmed() {
        let mut guard = known();
        guard.set_uid(Some("b"));
        assert_eq!(guard.held(true), Some(Held::OtherServer));
        let record = guard.next_record().expect("a record");
        assert_eq!(record.uid, "a");
        assert!(record.held.is_some());
        assert!(!guard.confirm("a") && !guard.confirm(""));
        assert!(guard.held(true).is_some());
        assert!(guard.confirm("b"));
        guard.set_record(Some(&stored(&guard)));
        assert_eq!(guard.held(true), None);
        assert!(guard.verify("b") && !guard.verify("a"));
        assert_eq!(guard.held(true), Some(Held::OtherServer));
    }

    #[test]
    fn older_list_is_held_also_after_a_restart() {
        let older = Held::OlderRevision {
            watched: Watched::NetworkPolicy,
            found: 150,
            known: 200,
        };
        // In both orders: the record may be read first, or the list.
        let mut guard = known();
        guard.set_uid(Some("a"));
        guard.listed(Watched::NetworkPolicy, 150);
        assert_eq!(guard.held(true), Some(older.clone()));
        let mut late = Guard::default();
        late.set_uid(Some("a"));
        late.listed(Watched::NetworkPolicy, 150);
        late.set_record(Some(
            br#"{"uid": "a", "revisions": {"NetworkPolicy": 200}}"#,
        ));
        assert_eq!(late.held(true), Some(older));
        // The server has grown beyond the known revision when the controller starts again.
        let mut restarted = Guard::default();
        restarted.set_record(Some(&stored(&guard)));
        restarted.set_uid(Some("a"));
        restarted.listed(Watched::NetworkPolicy, 500);
        assert!(matches!(restarted.held(true), Some(Held::Earlier(_))));
        assert!(restarted.confirm("a"));
        restarted.set_record(Some(&stored(&restarted)));
        assert_eq!(restarted.held(true), None);
    }

    #[test]
    fn older_list_within_a_run_is_held_without_a_record() {
        let mut guard = Guard::default();
        guard.set_uid(Some("a"));
        guard.listed(Watched::Pod, 90);
        guard.reached(Watched::Pod, 100);
        guard.listed(Watched::Pod, 95);
        assert!(matches!(
            guard.held(false),
            Some(Held::OlderRevision { known: 100, .. })
        ));
        assert_eq!(guard.next_record(), None);
    }

    #[test]
    fn texts_that_are_no_uid_do_not_identify_a_server() {
        let mut guard = known();
        for wrong in [
            "",
            "A",
            "a; reboot",
            "g",
            &"a".repeat(UID_CHARACTERS_MAX + 1),
        ] {
            guard.set_uid(Some(wrong));
            assert_eq!(guard.uid(), None, "{wrong}");
            assert_eq!(guard.held(true), Some(Held::NoIdentity), "{wrong}");
        }
    }

    #[test]
    fn other_server_replaces_nothing_until_it_is_confirmed() {
        let mut guard = known();
        assert!(!guard.may_replace(), "no UID was read");
        guard.set_uid(Some("a"));
        assert!(guard.may_replace());
        guard.set_uid(Some("b"));
        assert!(!guard.may_replace());
        assert!(guard.confirm("b"));
        guard.set_record(Some(&stored(&guard)));
        assert!(guard.may_replace());
        assert!(!guard.verify("a") && !guard.may_replace());
    }

    #[test]
    fn server_without_identity_cannot_be_confirmed() {
        let mut guard = known();
        guard.set_uid(None);
        assert_eq!(guard.held(true), Some(Held::NoIdentity));
        assert!(!guard.confirm(""));
        assert!(!Held::NoIdentity.needs_confirmation());
    }

    #[test]
    fn invalid_record_is_held() {
        let mut guard = Guard::default();
        guard.set_record(Some(b"x"));
        guard.set_uid(Some("a"));
        assert_eq!(guard.held(true), Some(Held::InvalidRecord));
        assert_eq!(guard.next_record(), None);
        assert!(guard.confirm("a"));
        assert_eq!(guard.held(false), None);
    }
}
