//! Large own transactions, which are not followed.

use std::thread;

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
