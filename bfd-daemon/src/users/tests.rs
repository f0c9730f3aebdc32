use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tokio::time::timeout;

use super::*;

/// Longest wait for the thread, which has nothing to do but to answer.
const THREAD_WITHIN: Duration = Duration::from_secs(60);

const STRANGER: u32 = 4_000_000_001;
const BGP: u32 = 4_000_000_002;

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

fn configured(users: &[&str]) -> Vec<String> {
    users.iter().map(|&user| user.to_owned()).collect()
}

/// Users with a directory service that answers when the test wants it.
struct Slow {
    users: Users,
    answers: SyncSender<Found>,
    asked: Receiver<Vec<String>>,
}

impl Slow {
    fn start(now: Instant, names: &[&str]) -> Self {
        let (answers, answer) = sync_channel::<Found>(1);
        let (asks, asked) = sync_channel(8);
        let look_up = move |names: Vec<String>| {
            asks.send(names).expect("the test ends later");
            answer.recv().unwrap_or_default()
        };
        Self {
            users: Users::start(now, &configured(names), look_up).expect("a thread"),
            answers,
            asked,
        }
    }

    /// Lets the host return these users.
    async fn answer(&mut self, now: Instant, found: &[(&str, Option<u32>)]) {
        let found = found.iter().map(|(name, id)| ((*name).to_owned(), *id));
        self.answers.send(found.collect()).expect("the thread runs");
        let ready = timeout(THREAD_WITHIN, self.users.ready()).await;
        ready.expect("an answer");
        self.users.turn(now);
    }

    /// Returns the names that the thread was asked for, in turn.
    fn asked(&self) -> Vec<String> {
        let asked = self.asked.recv_timeout(THREAD_WITHIN);
        asked.expect("a request")
    }
}

#[tokio::test]
async fn unknown_user_is_pending_until_the_host_has_answered() {
    let mut slow = Slow::start(at(1), &["bgp"]);
    assert_eq!(slow.asked(), ["bgp"]);
    for uid in [BGP, STRANGER] {
        assert_eq!(slow.users.decide(at(1), uid), Decision::Pending);
    }
    for uid in [0, geteuid().as_raw()] {
        assert_eq!(slow.users.decide(at(1), uid), Decision::Accepted);
    }
    assert_eq!(slow.users.notes(at(2)), Vec::<String>::new());
    let [note] = &slow.users.notes(at(11))[..] else {
        panic!("no note");
    };
    assert!(
        note.contains("for 10 s") && note.contains("numbers"),
        "{note}"
    );
    slow.answer(at(12), &[("bgp", Some(BGP))]).await;
    assert_eq!(slow.users.decide(at(12), BGP), Decision::Accepted);
    assert_eq!(slow.users.decide(at(12), STRANGER), Decision::Rejected);
    assert_eq!(slow.users.notes(at(12)), Vec::<String>::new());
}

#[tokio::test]
async fn users_are_looked_up_again_before_a_rejection() {
    let mut slow = Slow::start(at(1), &["bgp"]);
    slow.answer(at(1), &[("bgp", None)]).await;
    let [note] = &slow.users.notes(at(1))[..] else {
        panic!("no note");
    };
    assert!(note.contains("no user bgp"), "{note}");
    // Rejections do not make the daemon read the users of the host all the time.
    assert_eq!(slow.users.decide(at(1), BGP), Decision::Rejected);
    assert_eq!(slow.users.decide(at(2), BGP), Decision::Pending);
    slow.answer(at(3), &[("bgp", Some(BGP))]).await;
    assert_eq!(slow.users.decide(at(3), BGP), Decision::Accepted);
    // A failed lookup does not exclude a user that was found before.
    assert_eq!(slow.users.decide(at(5), STRANGER), Decision::Pending);
    slow.answer(at(5), &[]).await;
    assert_eq!(slow.users.decide(at(5), BGP), Decision::Accepted);
}

#[tokio::test]
async fn removed_user_is_rejected_before_new_names_are_found() {
    let mut slow = Slow::start(at(1), &["bgp"]);
    slow.answer(at(1), &[("bgp", Some(BGP))]).await;
    assert_eq!(slow.asked(), ["bgp"]);
    let number = STRANGER.to_string();
    slow.users
        .configure(at(1), &configured(&["other", &number]));
    assert_eq!(slow.users.decide(at(1), STRANGER), Decision::Accepted);
    assert_eq!(slow.users.decide(at(1), BGP), Decision::Pending);
    assert_eq!(slow.asked(), ["other"]);
    // The users change while the host looks the former ones up.
    slow.users.configure(at(2), &configured(&["third"]));
    slow.answer(at(2), &[("other", Some(BGP))]).await;
    assert_eq!(slow.users.decide(at(2), BGP), Decision::Pending);
    assert_eq!(slow.asked(), ["third"]);
    slow.answer(at(3), &[("third", None)]).await;
    for uid in [BGP, STRANGER] {
        assert_eq!(slow.users.decide(at(3), uid), Decision::Rejected);
    }
}

#[test]
fn users_without_names_need_no_host() {
    let users = configured(&[&BGP.to_string()]);
    let users = Users::start(at(1), &users, |_| panic!("looked up"));
    let mut users = users.expect("a thread");
    assert_eq!(users.decide(at(9), BGP), Decision::Accepted);
    assert_eq!(users.decide(at(9), STRANGER), Decision::Rejected);
}

#[test]
fn users_of_the_host_are_found_by_name() {
    let found = look_up(configured(&["root", "nobody-has-this"]));
    assert_eq!(found.get("root"), Some(&Some(0)));
    assert_eq!(found.get("nobody-has-this"), Some(&None));
}
