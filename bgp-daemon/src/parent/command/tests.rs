//! Octets of commands and answers.

use proptest::prelude::*;

use super::*;

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<[u8; 16]>(), any::<u16>(), any::<bool>(), any::<u32>()).prop_map(
        |(octets, port, is_ipv4, scope)| match octets.first_chunk::<4>() {
            Some(first) if is_ipv4 => (*first, port).into(),
            _ => std::net::SocketAddrV6::new(octets.into(), port, 0, scope).into(),
        },
    )
}

fn ports() -> impl Strategy<Value = BTreeSet<u16>> {
    prop::collection::btree_set(any::<u16>(), 0..5)
}

fn peers() -> impl Strategy<Value = BTreeSet<SocketAddr>> {
    prop::collection::btree_set(address(), 0..5)
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        address().prop_map(Command::Bind),
        (ports(), peers()).prop_map(|(ports, peers)| Command::LoadGuard { ports, peers }),
        Just(Command::WithdrawGuard),
        Just(Command::ReadGuard),
        Just(Command::Open),
        Just(Command::Report),
        Just(Command::ReadFile),
    ]
}

fn loaded() -> impl Strategy<Value = Loaded> {
    let users = prop::collection::btree_set(any::<u32>(), 0..4);
    let cover = (ports(), peers(), users).prop_map(|(ports, peers, users)| Cover {
        ports,
        peers,
        users,
    });
    let entries = prop::collection::btree_map(prop::sample::select(&Holder::ALL), cover, 0..3);
    let loaded = (entries, any::<u64>(), any::<Option<String>>());
    loaded.prop_map(|(entries, dropped, broken)| Loaded {
        entries,
        dropped,
        broken,
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let numbers = (any::<u32>(), any::<u64>(), any::<u32>());
    let restricted = (any::<Option<u32>>(), any::<bool>());
    let report = (numbers, restricted, any::<[String; 2]>());
    let refusal = (any::<u16>(), any::<bool>(), any::<String>());
    prop_oneof![
        Just(Answer::Done),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Answer::Opened),
        prop::option::of(loaded()).prop_map(Answer::Guard),
        report.prop_map(|(numbers, (landlock_abi, seccomp), [last, incomplete])| {
            let (pid, capabilities, restarts) = numbers;
            Answer::Report(ParentReport {
                pid,
                capabilities,
                restarts,
                last,
                landlock_abi,
                seccomp,
                incomplete,
            })
        }),
        refusal.prop_map(|(errno, is_permission, why)| {
            Answer::Refused(Refusal {
                errno,
                is_permission,
                why,
            })
        }),
    ]
}

proptest! {
    #[test]
    fn command_is_read_as_it_was_written(command in command()) {
        prop_assert_eq!(Command::decode(&command.encode()), Some(command));
    }

    #[test]
    fn answer_is_read_as_it_was_written(answer in answer()) {
        prop_assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }

    /// Each accepted text has one meaning, and each meaning one text.
    #[test]
    fn octets_are_a_command_or_rejected(octets in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Some(command) = Command::decode(&octets) {
            prop_assert_eq!(command.encode(), octets.clone());
        }
        if let Some(answer) = Answer::decode(&octets) {
            let _ = answer.encode();
        }
    }

    /// The same with the octets of a command that were changed.
    #[test]
    fn damaged_command_is_another_one_or_rejected(
        command in command(),
        at in any::<prop::sample::Index>(),
        octet in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut octets = command.encode();
        let at = at.index(octets.len());
        octets[at] = octet;
        octets.truncate(cut.index(octets.len() + 1));
        if let Some(command) = Command::decode(&octets) {
            prop_assert_eq!(command.encode(), octets);
        }
    }
}
