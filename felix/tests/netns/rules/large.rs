//! Large own transactions, which are not followed.

use std::net::Ipv4Addr;
use std::thread;

use cambric_felix::agent::{HostCommand, HostEvent};
use cambric_felix::apply::{LinuxHost, RulesError};
use cambric_felix::render::Change;
use tokio::runtime::Builder;

use super::*;

#[test]
fn large_own_transaction_costs_no_notification() {
    lab("large_own_transaction_costs_no_notification", || {
        let mut rules = Keeper::open();
        apply(&mut rules, &ruleset(&[]));
        assert_eq!(rules.check(), Checked::Intact);
        let before = rules.rules.effort().notifications;
        apply(&mut rules, &endpoints(5000));
        assert_eq!(rules.check(), Checked::Intact);
        assert_eq!(rules.rules.effort().notifications, before);
        // The next one is followed.
        run("nft flush chain inet cambric-felix control-unknown");
        assert_eq!(rules.check(), Checked::Changed);
        assert_listed(&endpoints(5000));
    });
}

#[test]
fn foreign_edit_beside_a_large_transaction_is_healed() {
    lab("foreign_edit_beside_a_large_transaction_is_healed", || {
        let mut rules = Keeper::open();
        apply(&mut rules, &endpoints(1000));
        for count in [1, 1000].into_iter().cycle().take(20) {
            let wanted = endpoints(count);
            thread::scope(|scope| {
                scope.spawn(|| run("nft flush chain inet cambric-felix control-unknown"));
                apply(&mut rules, &wanted);
            });
            let is_healed = (0..10).any(|_| rules.check() == Checked::Intact);
            assert!(is_healed);
            assert_listed(&wanted);
        }
    });
}

#[test]
fn commands_wait_for_the_thread_of_a_large_write() {
    lab("commands_wait_for_the_thread_of_a_large_write", || {
        let runtime = Builder::new_current_thread().build().unwrap();
        let mut host = LinuxHost::open(80).unwrap();
        runtime.block_on(async {
            let wanted = endpoints(5000);
            host.submit(1, HostCommand::WriteRules(creation(&wanted)));
            host.submit(2, HostCommand::CheckRules);
            // The thread's answer is taken in a turn of the loop only.
            assert_eq!(host.poll_event(), None);
            assert!(matches!(host.packets(), Err(RulesError::Busy)));
            assert_eq!(host.transactions(), 0);
            host.settle().await;
            let intact = HostEvent::RulesChecked(Ok(Checked::Intact));
            assert_eq!(
                host.poll_event(),
                Some((1, HostEvent::RulesWritten(Ok(()))))
            );
            assert_eq!(host.poll_event(), Some((2, intact.clone())));
            assert_eq!(host.transactions(), 1);
            assert!(host.packets().is_ok());

            let mut refused = creation(&endpoints(4000));
            refused.push(Change::DeleteSet("missing".into()));
            host.submit(3, HostCommand::WriteRules(refused));
            host.submit(4, HostCommand::CheckRules);
            host.settle().await;
            let answer = host.poll_event();
            let is_refused = |answer| matches!(answer, Some((3, HostEvent::RulesWritten(Err(_)))));
            assert!(is_refused(answer.clone()), "{answer:?}");
            assert_eq!(host.poll_event(), Some((4, intact)));
            assert_listed(&wanted);
        });
    });
}

#[test]
fn network_of_a_hundred_thousand_is_a_small_transaction() {
    lab(
        "network_of_a_hundred_thousand_is_a_small_transaction",
        || {
            const NAME: &str = "cali40s-large";
            let net = |n: u32| {
                let first = Ipv4Addr::from(0x0a00_0000 + 4 * n);
                Key::Net(format!("{first}/30").parse().unwrap())
            };
            let with = |keys: &mut dyn Iterator<Item = Key>| {
                let mut wanted = ruleset(&[]);
                let set = Set::of(SetKind::Nets(Family::V4), keys);
                wanted.sets.insert(NAME.into(), set);
                wanted
            };
            let mut rules = Keeper::open();
            apply(&mut rules, &with(&mut (0..100_000).map(net)));
            assert_eq!(rules.check(), Checked::Intact);
            // One leaves and one comes: the notifications are those of a few elements.
            let before = rules.rules.effort().notifications;
            let changed = with(&mut (1..100_001).map(net));
            apply(&mut rules, &changed);
            assert_eq!(rules.check(), Checked::Intact);
            let notified = rules.rules.effort().notifications - before;
            assert!(notified <= 10, "{notified}");
            let listed = run(&format!("nft list set inet cambric-felix {NAME}"));
            let mut words = listed.split([' ', ',', '\t', '\n']);
            let first = words.find(|word| word.ends_with("/30"));
            let last = words.rfind(|word| word.ends_with("/30"));
            assert_eq!((first, last), (Some("10.0.0.4/30"), Some("10.6.26.128/30")));
            assert_eq!(listed.matches("/30").count(), 100_000);
            assert_eq!(rules.foreign_edits, 0);
        },
    );
}
