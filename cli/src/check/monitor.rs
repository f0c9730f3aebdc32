//! `cambric check rules --monitor`: follows the commits of nftables, and compares the changed part after each.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use calico_store::Store;
use netlink::attributes::{find, iterate, text};
use netlink::nftables::NETLINK_NETFILTER;
use netlink::{Notification, Notifications};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rule_audit::audit::is_foreign;
use rule_audit::{Report, Touched, audit_touched};
use tokio::time::{Instant, sleep_until};

use super::{ATTEMPTS, PAUSE, Rules, findings, read, text as report_text};

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// The number of nftables in the types of netfilter's messages.
const SUBSYSTEM: u16 = 10 << 8;
/// `NFT_MSG_NEWGEN`: ends the notifications of each commit.
const NEW_GENERATION: u16 = SUBSYSTEM | 15;
/// `NFT_MSG_NEWCHAIN` to `NFT_MSG_DELSETELEM`.
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const DELETE_CHAIN: u16 = SUBSYSTEM | 5;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const DELETE_RULE: u16 = SUBSYSTEM | 8;
const NEW_SET: u16 = SUBSYSTEM | 9;
const DELETE_SET: u16 = SUBSYSTEM | 11;
const NEW_ELEMENT: u16 = SUBSYSTEM | 12;
const DELETE_ELEMENT: u16 = SUBSYSTEM | 14;

/// The attribute of every object that names its table.
const TABLE: u16 = 1;
/// `NFTA_RULE_CHAIN`, `NFTA_CHAIN_NAME`, `NFTA_SET_NAME` and `NFTA_SET_ELEM_LIST_SET`.
const RULE_CHAIN: u16 = 2;
const CHAIN_NAME: u16 = 3;
const SET_NAME: u16 = 2;
/// `NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_SET_ELEM_KEY` and `NFTA_DATA_VALUE`.
const ELEMENTS: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;
/// `NFTA_GEN_ID`.
const GENERATION_ID: u16 = 1;
/// `NFPROTO_INET` and the other families, with their names.
const INET: u8 = 1;
const FAMILIES: [(u8, &str); 6] = [
    (INET, "inet"),
    (2, "ip"),
    (3, "arp"),
    (5, "netdev"),
    (7, "bridge"),
    (10, "ip6"),
];
/// Octets of `nfgenmsg`, and of the name of an interface in a key.
const HEADER_OCTETS: usize = 4;
const INTERFACE_OCTETS: usize = 16;

/// Octets of the receive buffer. Commits that do not fit lead to a check of everything.
const BUFFER_OCTETS: usize = 8 << 20;
/// Number of parts that are read at once: beyond it, everything is checked.
const PARTS_MAX: usize = 4096;
/// Minimum time between a comparison and the next one: each lists all rules, and reads the datastore. Commits
/// in it are compared together.
const GAP: Duration = Duration::from_secs(1);
/// No socket has this port ID: the notifications of all programs are read.
const NO_WRITER: u32 = u32::MAX;

/// The commits since the last check.
#[derive(Debug, Default)]
struct Commits {
    /// The first and the last generation that names Felix's table, or one that is not known.
    generations: Option<(u32, u32)>,
    touched: Touched,
    /// A commit of which the end was not read yet.
    open: Touched,
    /// Notifications were lost.
    has_gap: bool,
    /// Tables of other programs without a comparison.
    known_tables: BTreeSet<(String, String)>,
}

impl Commits {
    fn take(&mut self, notification: Notification<'_>) {
        let Some(attributes) = notification.payload.get(HEADER_OCTETS..) else {
            self.has_gap = true;
            return;
        };
        if notification.kind == NEW_GENERATION {
            let id = find(attributes, GENERATION_ID).and_then(|id| id.first_chunk());
            let touched = std::mem::take(&mut self.open);
            match id {
                Some(id) if !touched.is_empty() => {
                    let id = u32::from_be_bytes(*id);
                    let first = self.generations.map_or(id, |(first, _)| first);
                    self.generations = Some((first, id));
                    self.touched.merge(touched);
                }
                Some(_) => {}
                None => self.has_gap = true,
            }
            return;
        }
        let family = notification.payload.first().copied().and_then(family);
        let family = family.unwrap_or_default();
        let name = find(attributes, TABLE).map(text).unwrap_or_default();
        if (family, &*name) == rule_audit::audit::TABLE {
            add(&mut self.open, notification.kind, attributes);
        } else if is_foreign(family, &name) {
            let table = (family.to_owned(), name);
            if !self.known_tables.contains(&table) {
                self.open.add_foreign();
            }
        }
    }

    /// Reads all queued notifications.
    fn read(&mut self, notifications: &mut Notifications) {
        for _ in 0..PARTS_MAX {
            match notifications.read(|notification| self.take(notification)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // ENOBUFS: the kernel has discarded messages. The others are read on.
                Err(_) => self.has_gap = true,
            }
        }
        // Other programs write faster than this one reads.
        self.has_gap = true;
    }

    /// Returns a title and the changed objects, if there are some, and removes them.
    fn next(&mut self) -> Option<(String, Touched)> {
        let generations = self.generations.take();
        let touched = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.has_gap) {
            // The rest of an open commit may be lost.
            let title = "notifications were lost, all are compared".to_owned();
            return Some((title, Touched::everything()));
        }
        let title = match generations? {
            (first, last) if first == last => format!("commit {first}"),
            (first, last) => format!("commits {first}-{last}"),
        };
        Some((title, touched))
    }
}

/// Returns the name of a family in a notification.
fn family(number: u8) -> Option<&'static str> {
    let found = FAMILIES.iter().find(|(known, _)| *known == number);
    found.map(|(_, name)| *name)
}

/// Adds the object of a notification.
fn add(touched: &mut Touched, kind: u16, attributes: &[u8]) {
    let name = |attribute: u16| find(attributes, attribute).map(text);
    match kind {
        NEW_CHAIN | DELETE_CHAIN => name(CHAIN_NAME).map(|name| touched.add_chain(name)),
        NEW_RULE | DELETE_RULE => name(RULE_CHAIN).map(|name| touched.add_chain(name)),
        NEW_SET | DELETE_SET => name(SET_NAME).map(|name| touched.add_set(name)),
        NEW_ELEMENT | DELETE_ELEMENT => name(SET_NAME).map(|name| {
            let list = find(attributes, ELEMENTS).unwrap_or_default();
            for (_, element) in iterate(list) {
                touched.add_element(name.clone(), interface(element));
            }
        }),
        // The table itself, or an object that is not known here.
        _ => None,
    }
    .unwrap_or_else(|| *touched = Touched::everything());
}

/// Returns the name of the interface at the begin of the key of an element.
fn interface(element: &[u8]) -> Option<String> {
    let value = find(find(element, ELEMENT_KEY)?, DATA_VALUE)?;
    let name = value.get(..INTERFACE_OCTETS)?;
    let end = name.iter().position(|octet| *octet == 0)?;
    let name = std::str::from_utf8(name.get(..end)?).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Compares everything, then the changed part after each commit. It ends only with an error.
pub(super) async fn run(args: &Rules, store: &impl Store, node: &str) -> Result<ExitCode> {
    let joined = Notifications::join(
        NETLINK_NETFILTER,
        GROUP,
        NO_WRITER,
        NEW_GENERATION,
        BUFFER_OCTETS,
    );
    // Before the first check, so that no commit is between both.
    let mut notifications = joined.context("the notifications of nftables")?;
    let descriptor = Arc::new(notifications.as_fd().try_clone_to_owned()?);
    let report = compared(args, store, node, &Touched::everything()).await?;
    print(&report_text(&report, node, args.all))?;
    let mut commits = Commits {
        known_tables: args.known_table.iter().cloned().collect(),
        ..Commits::default()
    };
    loop {
        let pace = Pace::new();
        let (title, touched) = loop {
            let waited = Arc::clone(&descriptor);
            tokio::task::spawn_blocking(move || wait(&waited)).await??;
            pace.wait().await;
            commits.read(&mut notifications);
            if let Some(next) = commits.next() {
                break next;
            }
        };
        let report = compared(args, store, node, &touched).await?;
        print(&lines(&title, &report))?;
    }
}

/// The time of the next comparison.
struct Pace(Instant);

impl Pace {
    /// Begins after a comparison.
    fn new() -> Self {
        Self(Instant::now() + GAP)
    }

    /// Waits until the next comparison may begin.
    async fn wait(&self) {
        sleep_until(self.0).await;
    }
}

/// Waits until there is a notification.
fn wait(descriptor: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    match poll(&mut polled, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Compares the changed part. Felix may apply a change between the reads of datastore and kernel.
async fn compared(
    args: &Rules,
    store: &impl Store,
    node: &str,
    touched: &Touched,
) -> Result<Report> {
    let mut attempt = 1;
    loop {
        let (fabric, listing) = read(args, store, node).await?;
        let report = audit_touched(&fabric, &listing, touched);
        if !report.is_different() || attempt == ATTEMPTS {
            return Ok(report);
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns one line, and the differences.
fn lines(title: &str, report: &Report) -> String {
    let (equal, different, unknown) = super::counts(report);
    let checked = report.subjects.len();
    format!(
        "{title}: {checked} compared: {equal} equal, {different} different, {unknown} unknown\n{}",
        findings(report, false)
    )
}

fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut octets = [&length.to_ne_bytes(), &kind.to_ne_bytes()[..], value].concat();
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn object(family: u8, table: &str, more: &[(u16, &[u8])]) -> Vec<u8> {
        let table = attribute(TABLE, &[table.as_bytes(), &[0]].concat());
        let more = more
            .iter()
            .flat_map(|(kind, value)| attribute(*kind, value));
        [vec![family, 0, 0, 0], table, more.collect()].concat()
    }

    fn end(generation: u32) -> Vec<u8> {
        let id = attribute(GENERATION_ID, &generation.to_be_bytes());
        [vec![0; HEADER_OCTETS], id].concat()
    }

    fn taken(all: &[(u16, Vec<u8>)]) -> Commits {
        let mut commits = Commits::default();
        for (kind, payload) in all {
            commits.take(Notification::new(*kind, 1, payload));
        }
        commits
    }

    #[test]
    fn commit_has_the_names_of_its_objects() {
        const OWN: &str = "cambric-felix";
        let key = [&b"cali1"[..], &[0; 11], &[10, 65, 0, 1]].concat();
        let key = attribute(ELEMENT_KEY, &attribute(DATA_VALUE, &key));
        let elements = attribute(1, &key);
        let all = [
            (NEW_RULE, object(INET, OWN, &[(RULE_CHAIN, b"a\0")])),
            (DELETE_CHAIN, object(INET, OWN, &[(CHAIN_NAME, b"b\0")])),
            (NEW_SET, object(INET, OWN, &[(SET_NAME, b"s\0")])),
            (
                NEW_ELEMENT,
                object(INET, OWN, &[(SET_NAME, b"t\0"), (ELEMENTS, &elements)]),
            ),
            (
                NEW_RULE,
                object(INET, "cambric-guard", &[(RULE_CHAIN, b"no\0")]),
            ),
            (NEW_RULE, object(5, OWN, &[(RULE_CHAIN, b"no\0")])),
            (NEW_GENERATION, end(5)),
        ];
        let mut wanted = Touched::default();
        wanted.add_chain("a".to_owned());
        wanted.add_chain("b".to_owned());
        wanted.add_set("s".to_owned());
        wanted.add_element("t".to_owned(), Some("cali1".to_owned()));
        let mut commits = taken(&all);
        assert_eq!(commits.next(), Some(("commit 5".to_owned(), wanted)));
        assert_eq!(commits.next(), None);
        // Without its end, a commit is not complete; one of another table has no names.
        assert_eq!(taken(&all[..4]).next(), None);
        assert_eq!(taken(&all[4..]).next(), None);
        let two = [all.as_slice(), &[all[0].clone(), (NEW_GENERATION, end(6))]].concat();
        assert_eq!(taken(&two).next().unwrap().0, "commits 5-6");
    }

    #[test]
    fn commit_of_an_unknown_table_leads_to_a_check_of_tables() {
        let mut foreign = Touched::default();
        foreign.add_foreign();
        let rule = |family, table| (NEW_RULE, object(family, table, &[(RULE_CHAIN, b"no\0")]));
        for (family, table, wanted) in [
            (INET, "other", Some(&foreign)),
            (2, "cambric-felix", Some(&foreign)),
            (INET, "cambric-felix-boot", Some(&foreign)),
            (2, "nat", None),
            (INET, "nat", Some(&foreign)),
            (INET, "cambric-felix-offload", None),
        ] {
            let mut commits = Commits::default();
            let known = ("ip".to_owned(), "nat".to_owned());
            commits.known_tables.insert(known);
            for (kind, payload) in [rule(family, table), (NEW_GENERATION, end(5))] {
                commits.take(Notification::new(kind, 1, &payload));
            }
            let found = commits.next().map(|(_, touched)| touched);
            assert_eq!(found.as_ref(), wanted, "{family} {table}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn next_comparison_begins_after_the_gap() {
        let begun = Instant::now();
        let pace = Pace::new();
        pace.wait().await;
        assert_eq!(begun.elapsed(), GAP);
        // Once only: later commits are compared at once.
        pace.wait().await;
        assert_eq!(begun.elapsed(), GAP);
    }

    #[test]
    fn unreadable_notification_leads_to_a_whole_check() {
        const OWN: &str = "cambric-felix";
        for all in [
            vec![(NEW_RULE, vec![1])],
            vec![(NEW_GENERATION, vec![0; 4])],
            vec![(NEW_RULE, object(INET, OWN, &[])), (NEW_GENERATION, end(2))],
            vec![
                (SUBSYSTEM, object(INET, OWN, &[])),
                (NEW_GENERATION, end(2)),
            ],
        ] {
            let (_, touched) = taken(&all).next().unwrap();
            assert!(touched.is_everything(), "{all:?}");
        }
        let whole = object(INET, OWN, &[(RULE_CHAIN, b"a\0")]);
        for length in 0..whole.len() {
            let cut = whole.get(..length).unwrap().to_vec();
            // Cut octets never panic.
            let _ = taken(&[(NEW_RULE, cut), (NEW_GENERATION, end(2))]).next();
        }
    }
}
