use super::*;

fn place(dir: &Path) -> Place {
    Place {
        secret: "bgp/fabric".parse().expect("a place"),
        dir: dir.to_owned(),
    }
}

fn keys(place: &Place) -> (String, Option<String>) {
    let keys = place.read().expect("a secret");
    (keys.password.0, keys.second.map(|key| key.0))
}

#[test]
fn key_is_created_once_and_random() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let created = dirs.each_ref().map(|dir| {
        let place = place(dir.path());
        let report = place.create().expect("created");
        let (key, second) = keys(&place);
        let expected = format!("bgp/fabric: 1 key: {}", label(&key));
        assert!(report.ends_with(&expected), "{report}");
        assert!(key.len() == 64 && key.bytes().all(|octet| octet.is_ascii_hexdigit()));
        assert_eq!(second, None);
        let mode = |path: PathBuf| path.metadata().expect("there").mode() & 0o777;
        assert_eq!(
            (mode(place.file()), mode(place.directory())),
            (0o640, 0o750)
        );
        let again = place.create().expect_err("it exists");
        assert!(
            again.to_string().contains("`cambric key rotate`"),
            "{again}"
        );
        assert_eq!(keys(&place).0, key);
        key
    });
    assert_ne!(created[0], created[1]);
}

#[test]
fn steps_change_the_key_and_may_be_taken_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(dir.path());
    place.create().expect("created");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(place.file(), mode).expect("set");
    let (old, _) = keys(&place);
    let early = place.change(|keys| switch(keys, &label(&old)));
    let early = format!("{:#}", early.expect_err("one key"));
    assert!(early.contains("`begin`"), "{early}");

    place.change(begin).expect("begun");
    let (used, second) = keys(&place);
    let new = second.expect("a second key");
    assert!(used == old && new != old && new.len() == 64);
    place.change(begin).expect_err("two keys");
    let both = [&old, &new].map(|key| label(key));
    place
        .change(|keys| end(keys, &both[1]))
        .expect_err("not in use");
    place
        .change(|keys| switch(keys, "00"))
        .expect_err("no such key");
    assert_eq!(keys(&place), (old.clone(), Some(new.clone())));
    // The second of two equal commands has no effect.
    for (to, used, second) in [
        (1, &new, &old),
        (1, &new, &old),
        (0, &old, &new),
        (0, &old, &new),
        (1, &new, &old),
    ] {
        place
            .change(|keys| switch(keys, &both[to]))
            .expect("changed");
        let found = keys(&place);
        assert_eq!((&found.0, found.1.as_ref()), (used, Some(second)));
    }
    place
        .change(|keys| end(keys, &both[0]))
        .expect_err("not in use");
    for _ in 0..2 {
        place.change(|keys| end(keys, &both[1])).expect("ended");
        assert_eq!(keys(&place), (new.clone(), None));
    }
    assert_eq!(
        place.file().metadata().expect("there").mode() & 0o777,
        0o600
    );
    let files = fs::read_dir(place.directory()).expect("a directory");
    assert_eq!(files.count(), 1, "no copy of a key is left");
}

// Promise (BGP): Two commands that change a session key at the same time never lose a key: the
// second one is refused.
#[test]
fn second_change_at_the_same_time_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(dir.path());
    place.create().expect("created");
    let first = place.change(|keys| {
        for second in [place.change(begin), place.create()] {
            let refused = format!("{:#}", second.expect_err("locked"));
            assert!(refused.contains("another `cambric key`"), "{refused}");
        }
        begin(keys)
    });
    first.expect("changed");
    let (used, new) = keys(&place);
    let again = format!("{:#}", place.change(begin).expect_err("two keys"));
    assert!(again.contains("already has two keys"), "{again}");
    assert_eq!(keys(&place), (used, new));
}

#[test]
fn content_of_another_program_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(dir.path());
    place.create().expect("created");
    let changed = place.change(|keys| {
        fs::write(place.file(), "QXZ\n").expect("written");
        begin(keys)
    });
    let refused = format!("{:#}", changed.expect_err("another content"));
    assert!(refused.contains("by another program"), "{refused}");
    assert!(!refused.contains("QXZ"), "{refused}");
    assert_eq!(keys(&place), ("QXZ".to_owned(), None));
    let files = fs::read_dir(place.directory()).expect("a directory");
    assert_eq!(files.count(), 1, "no copy of a key is left");
}

#[test]
fn one_of_many_creations_at_once_succeeds() {
    let dir = tempfile::tempdir().expect("a directory");
    let created: Vec<String> = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| place(dir.path()).create().ok()))
            .collect();
        let created = creators.into_iter();
        created
            .filter_map(|creator| creator.join().expect("no panic"))
            .collect()
    });
    let (key, _) = keys(&place(dir.path()));
    let [report] = &created[..] else {
        panic!("{created:?}");
    };
    assert!(report.ends_with(&label(&key)), "{report}");
}

#[test]
fn link_to_a_managed_secret_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(dir.path());
    fs::create_dir(place.directory()).expect("made");
    fs::write(dir.path().join("managed"), "QXZ\n").expect("written");
    std::os::unix::fs::symlink("../managed", place.file()).expect("linked");
    for error in [place.change(begin), place.create()] {
        let error = format!("{:#}", error.expect_err("a link"));
        assert!(!error.contains("QXZ"), "{error}");
    }
    assert_eq!(keys(&place), ("QXZ".to_owned(), None));
}

#[test]
fn place_leads_into_no_other_directory() {
    for text in [
        "bgp", "bgp/", "/fabric", "../x", "x/..", "a/b/c", "./a", "a/\0",
    ] {
        text.parse::<Secret>().expect_err(text);
    }
}

#[test]
fn label_of_random_key_alone_is_a_digest() {
    let random = ["0", "1"].map(|digit| digit.repeat(64));
    let labels = random.each_ref().map(|key| label(key));
    assert!(labels[0] != labels[1] && labels.iter().all(|label| label.len() == 8));
    for password in ["old", "", &"A".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
        assert_eq!(label(password), "manual");
    }
    let keys = SessionKeys {
        password: "old".into(),
        second: Some("new".into()),
    };
    switch(keys.clone(), "manual").expect_err("ambiguous");
    end(keys, "manual").expect_err("ambiguous");
}
