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
        assert!(report.ends_with("bgp/fabric: 1 key"), "{report}");
        let (key, second) = keys(&place);
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
    let early = place.change(switch).expect_err("one key");
    assert!(format!("{early:#}").contains("`begin`"), "{early:#}");
    place.change(end).expect_err("one key");

    place.change(begin).expect("begun");
    let (used, second) = keys(&place);
    let new = second.expect("a second key");
    assert!(used == old && new != old && new.len() == 64);
    place.change(begin).expect_err("two keys");
    for (step, used, second) in [
        (
            switch as fn(SessionKeys) -> Result<SessionKeys>,
            &new,
            Some(&old),
        ),
        (switch, &old, Some(&new)),
        (switch, &new, Some(&old)),
        (end, &new, None),
    ] {
        place.change(step).expect("changed");
        let found = keys(&place);
        assert_eq!((&found.0, found.1.as_ref()), (used, second));
    }
    assert_eq!(
        place.file().metadata().expect("there").mode() & 0o777,
        0o600
    );
    let files = fs::read_dir(place.directory()).expect("a directory");
    assert_eq!(files.count(), 1, "no copy of a key is left");
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
