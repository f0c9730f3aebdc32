//! Ranges that had no changes for longer than the store's history lasts.

use super::*;

/// Returns a world with a store of which all watches are lost and all history, including the
/// changes of `act`, is compacted.
fn forgotten(act: fn(&mut World)) -> World {
    let mut world = World::new();
    for nth in 0..5 {
        world.put(&format!("/a/{nth}"), "quiet");
    }
    world.put("/b/1", "x");
    world.settle();
    for nth in 0..9 {
        world.put("/b/1", &nth.to_string());
    }
    world.settle();
    world.core.lose_watches();
    act(&mut world);
    world
        .core
        .compact(world.core.header().revision)
        .expect("done");
    world.calm();
    world.check_in_sync();
    assert_eq!(world.consumer.statuses, [Status::Syncing, Status::InSync]);
    world
}

#[test]
fn range_quiet_beyond_the_history_is_not_listed() {
    let world = forgotten(|_| {});
    assert_eq!(lists(&world), [1, 1]);
    assert_eq!((world.consumer.puts, world.consumer.deletes), (7, 0));
}

/// The store keeps an hour of history; one range changes once a minute, the other never.
#[test]
fn a_range_that_is_quiet_is_known_as_of_lately() {
    let mut world = World::new();
    world.put("/a/1", "quiet");
    let mut history = Vec::new();
    for minute in 1..=300 {
        world.put("/b/1", &minute.to_string());
        history.push(world.core.header().revision);
        if let Some(hour_ago) = history.len().checked_sub(60) {
            world.core.compact(history[hour_ago]).unwrap();
        }
        while world.now < Duration::from_secs(minute * 60) {
            world.settle();
            world.pass();
        }
    }
    world.settle();
    // Every ten to twenty minutes, and the busy range never.
    assert!((15..=30).contains(&world.newer), "{}", world.newer);
    let (newer, puts) = (world.newer, world.consumer.puts);
    world.core.lose_watches();
    world.calm();
    world.check_in_sync();
    assert_eq!((lists(&world), world.newer), (vec![1, 1], newer));
    assert_eq!((world.consumer.puts, world.consumer.deletes), (puts, 0));
    assert_eq!(world.consumer.statuses, [Status::Syncing, Status::InSync]);
}

#[test]
fn changes_after_a_compaction_need_no_list() {
    let world = forgotten(|world| {
        world.put("/a/0", "changed");
        world.put("/a/9", "new");
        // Deleted and created again, which the number of keys does not show.
        world.delete(KeyRange::key("/b/1"));
        world.put("/b/1", "again");
    });
    assert_eq!(lists(&world), [1, 1]);
    assert_eq!((world.consumer.puts, world.consumer.deletes), (10, 0));
}

#[test]
fn deletion_in_a_lost_history_is_found_by_a_list() {
    for act in [
        |world: &mut World| world.delete(KeyRange::key("/a/3")),
        |world: &mut World| {
            // The same number of keys as before.
            world.put("/a/9", "new");
            world.delete(KeyRange::key("/a/3"));
        },
    ] {
        let world = forgotten(act);
        assert_eq!(lists(&world), [2, 1]);
        assert_eq!(world.consumer.deletes, 1);
    }
}

#[test]
fn more_news_than_a_page_holds_is_a_list() {
    let world = forgotten(|world| {
        for nth in 0..3 {
            world.put(&format!("/a/{nth}"), "changed");
        }
    });
    assert_eq!(lists(&world), [2, 1]);
}

#[test]
fn unanswered_question_is_asked_again() {
    let mut world = World::new();
    world.put("/a/1", "x");
    world.put("/b/1", "x");
    world.settle();
    world.core.lose_watches();
    world.put("/a/2", "new");
    world.core.compact(world.core.header().revision).unwrap();
    for lost in 0..40 {
        world.ask();
        let newer = |output: &Output| matches!(output, Output::List { .. });
        let error = Error::Unavailable("away".into());
        if let Some(Output::List { feed, .. }) = world.asked.pop_front_if(|asked| newer(asked)) {
            // Every other request is not answered.
            if lost % 2 == 0 {
                world.mirror.listed(world.now, feed, Err(error));
            }
        } else if !world.answer() && !world.bring() {
            world.pass();
        }
    }
    assert_eq!(lists(&world), [1, 1]);
    world.calm();
    world.check_in_sync();
    assert_eq!(lists(&world), [1, 1]);
}
