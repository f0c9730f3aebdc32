use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use super::*;

fn secret(name: &str, key: &str) -> SecretKeyRef {
    SecretKeyRef {
        name: name.into(),
        key: key.into(),
        optional: None,
    }
}

/// A keeper of the passwords `bgp/…` in a new directory.
fn keeper(keys: &[&str]) -> (tempfile::TempDir, Keeper) {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("bgp")).expect("made");
    let mut keeper = Keeper::new(directory.path().to_owned());
    keeper.want(keys.iter().map(|key| secret("bgp", key)).collect());
    (directory, keeper)
}

/// Starts the next read at once.
async fn read_again(keeper: &mut Keeper) -> bool {
    keeper.read_at = Clock::now();
    keeper.next().await
}

fn word(keeper: &Keeper, key: &str) -> Option<String> {
    let passwords = keeper.passwords();
    let found = passwords.get(&("bgp".to_owned(), key.to_owned()));
    found.map(|password| password.0.clone())
}

fn notes(keeper: &Keeper) -> String {
    let faults: Vec<String> = keeper.faults().map(|fault| fault.to_string()).collect();
    faults.join("\n")
}

#[tokio::test]
async fn names_of_the_store_lead_nowhere_else() {
    let (directory, mut keeper) = keeper(&[]);
    fs::write(directory.path().join("outside"), "no").expect("written");
    fs::write(directory.path().join("bgp/mesh"), "word\n").expect("written");
    keeper.directory.push("bgp");
    fs::create_dir(directory.path().join("bgp/bgp")).expect("made");
    fs::write(directory.path().join("bgp/bgp/mesh"), "word\n").expect("written");
    let wanted = [
        secret("bgp", "mesh"),
        secret("bgp", "absent"),
        secret("..", "outside"),
        secret("bgp", "../../outside"),
        secret("", "bgp"),
    ];
    keeper.want(wanted.into());
    assert!(!keeper.is_settled(), "nothing was read yet");
    assert!(read_again(&mut keeper).await);
    assert!(keeper.is_settled());
    assert_eq!(keeper.passwords().len(), 1);
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("word"));
    assert_eq!(keeper.faults().count(), 3);
}

#[tokio::test]
async fn mounted_secret_is_replaced_as_the_kubelet_does() {
    let (directory, mut keeper) = keeper(&["mesh"]);
    let mount = directory.path().join("bgp");
    let version = |name: &str, text: &str| {
        fs::create_dir(mount.join(name)).expect("made");
        fs::write(mount.join(name).join("mesh"), text).expect("written");
        // The kubelet replaces the link, never a file.
        let new = mount.join("..data_tmp");
        std::os::unix::fs::symlink(name, &new).expect("a link");
        fs::rename(&new, mount.join("..data")).expect("replaced");
    };
    version("..2026_01", "one\n");
    std::os::unix::fs::symlink("..data/mesh", mount.join("mesh")).expect("a link");
    assert!(read_again(&mut keeper).await);
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("one"));
    version("..2026_02", "two\none\n");
    read_again(&mut keeper).await;
    assert!(read_again(&mut keeper).await, "after two equal reads");
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("two\none"));
}

#[tokio::test]
async fn read_password_stays_while_referenced() {
    let (directory, mut keeper) = keeper(&["mesh"]);
    let path = directory.path().join("bgp/mesh");
    assert!(read_again(&mut keeper).await);
    assert_eq!(word(&keeper, "mesh"), None, "it was never there");
    assert_eq!(notes(&keeper), "", "the part that needs it reports it");
    fs::write(&path, "word\n").expect("written");
    assert!(read_again(&mut keeper).await);
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("word"));
    assert_eq!(notes(&keeper), "");

    fs::remove_file(&path).expect("removed");
    assert!(read_again(&mut keeper).await, "there is something to tell");
    assert!(!read_again(&mut keeper).await, "once");
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("word"));
    assert!(
        notes(&keeper)
            .contains("bgp/mesh: No such file or directory (os error 2): the last password stays")
    );
    fs::write(&path, "").expect("written");
    read_again(&mut keeper).await;
    fs::write(&path, b"\xff\xfe").expect("written");
    read_again(&mut keeper).await;
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("word"));

    keeper.want(BTreeSet::new());
    keeper.want([secret("bgp", "mesh")].into());
    read_again(&mut keeper).await;
    assert_eq!(word(&keeper, "mesh"), None, "nothing pointed to it");
}

#[tokio::test]
async fn another_value_is_taken_when_it_was_read_twice_in_a_row() {
    let (directory, mut keeper) = keeper(&["mesh"]);
    let reads = ["one", "tw", "two", "", "two", "one", "two", "two"];
    let taken = ["one", "one", "one", "one", "one", "one", "one", "two"];
    for (read, taken) in reads.into_iter().zip(taken) {
        fs::write(directory.path().join("bgp/mesh"), read).expect("written");
        read_again(&mut keeper).await;
        assert_eq!(word(&keeper, "mesh").as_deref(), Some(taken), "{read:?}");
    }
}

#[tokio::test]
async fn last_valid_keys_stay_while_the_file_is_invalid() {
    let (directory, mut keeper) = keeper(&["mesh"]);
    let path = directory.path().join("bgp/mesh");
    fs::write(&path, "QXZ\n\nnew\n").expect("written");
    read_again(&mut keeper).await;
    assert_eq!(word(&keeper, "mesh"), None);
    assert!(keeper.is_settled());
    fs::write(&path, "old\nnew\n").expect("written");
    read_again(&mut keeper).await;
    assert_eq!(word(&keeper, "mesh").as_deref(), Some("old\nnew"));
    assert_eq!(notes(&keeper), "");
    for (invalid, reason) in [
        ("QXZ\n\nnew", "has 0 octets"),
        ("QXZ\nnew\nthird", "has more than two lines"),
        (&"QXZ".repeat(30), "has 90 octets"),
    ] {
        fs::write(&path, invalid).expect("written");
        for _ in 0..3 {
            read_again(&mut keeper).await;
        }
        assert_eq!(word(&keeper, "mesh").as_deref(), Some("old\nnew"));
        let notes = notes(&keeper);
        assert!(notes.contains(reason) && notes.ends_with("the last password stays in effect"));
        assert!(!notes.contains("QXZ"), "{notes}");
    }
}

#[tokio::test]
async fn only_regular_files_are_read_and_none_blocks() {
    let (directory, mut keeper) = keeper(&["directory", "pipe", "socket"]);
    let at = |key: &str| directory.path().join("bgp").join(key);
    fs::create_dir(at("directory")).expect("made");
    let made = Command::new("mkfifo").arg(at("pipe")).status();
    assert!(made.expect("runs").success());
    let _socket = UnixListener::bind(at("socket")).expect("bound");
    assert!(read_again(&mut keeper).await);
    assert!(keeper.passwords().is_empty());
    let notes = notes(&keeper);
    for line in [
        "/bgp/directory: is no regular file",
        "/bgp/pipe: is no regular file",
        "/bgp/socket: No such device or address (os error 6)",
    ] {
        assert!(notes.contains(line), "{notes}");
    }
}

#[tokio::test]
async fn a_directory_that_does_not_answer_is_waited_for_only_so_long() {
    let (_directory, mut keeper) = keeper(&["mesh"]);
    keeper.reading = Some((tokio::spawn(pending()), Clock::now()));
    assert!(!keeper.is_settled());
    assert!(keeper.next().await);
    assert!(keeper.is_settled());
    assert!(notes(&keeper).contains("does not answer"));
}
