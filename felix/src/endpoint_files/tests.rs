use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::calc::Placement;

const WEB: &str = "endpoint-status/k8s prod%2Fweb-0 eth0";
const WEB_ERROR: &str = "endpoint-error/k8s prod%2Fweb-0 eth0";

struct World {
    directory: TempDir,
    files: EndpointFiles,
    now: Instant,
    link: Option<u32>,
    placements: BTreeMap<EndpointId, (Placement, EndpointState, Option<String>)>,
    reported: BTreeMap<EndpointId, (Placement, EndpointState, Option<String>)>,
}

/// Returns files below a directory.
fn below(prefix: &Path) -> EndpointFiles {
    let mut files = EndpointFiles::default();
    files.follow(Some(prefix));
    files
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            files: below(directory.path()),
            directory,
            now: Instant(0),
            link: Some(7),
            placements: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    /// Creates a file of an earlier run.
    fn left(&self, path: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }

    fn endpoint(&mut self, workload: &str, state: EndpointState, reason: Option<&str>) {
        let id = EndpointId {
            orchestrator: "k8s".into(),
            workload: format!("prod/{workload}"),
            endpoint: "eth0".into(),
        };
        let endpoint = Endpoint {
            id: id.clone(),
            resource: format!("prod/n1-k8s-{workload}-eth0"),
            interface: "cali1".into(),
            container_id: "9f3c".into(),
            mac: "aa:bb:cc:00:11:22".parse().ok(),
            addresses: vec!["10.65.3.70".parse().unwrap(), "fd65::70".parse().unwrap()],
            profiles: vec![],
            floating: Vec::new(),
            spoofed: Vec::new(),
            ..Endpoint::default()
        };
        let placement = Placement {
            endpoint,
            denied: None,
            missing: None,
        };
        self.placements
            .insert(id, (placement, state, reason.map(str::to_owned)));
    }

    fn update(&mut self, settled: bool) {
        let ids = self.placements.keys().chain(self.reported.keys());
        let changed = ids.filter(|id| self.placements.get(*id) != self.reported.get(*id));
        let changed: BTreeSet<&EndpointId> = changed.collect();
        let views = changed.into_iter().map(|id| {
            let now = self.placements.get(id);
            let view = now.map(|(placement, state, reason)| EndpointView {
                id,
                placement,
                link: self.link,
                state: *state,
                reason: reason.clone(),
                unlimited: None,
            });
            (id, view)
        });
        self.files.update(self.now, views, settled);
        self.reported = self.placements.clone();
    }

    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        for directory in [EndpointFile::UP, EndpointFile::ERROR] {
            for entry in fs::read_dir(self.directory.path().join(directory)).unwrap() {
                let name = entry.unwrap().file_name();
                found.push(format!("{directory}/{}", name.to_str().unwrap()));
            }
        }
        found.sort();
        found
    }

    fn read(&self, path: &str) -> Value {
        let octets = fs::read(self.directory.path().join(path)).unwrap();
        serde_json::from_slice(&octets).unwrap()
    }
}

#[test]
fn a_file_is_there_while_the_endpoint_is_up() {
    let mut world = World::new();
    world.endpoint("web-0", EndpointState::Down, Some("no carrier"));
    world.update(false);
    assert!(world.files().is_empty());
    world.endpoint("web-0", EndpointState::Up, None);
    world.update(false);
    assert_eq!(world.files(), [WEB]);
    let reported = json!({
        "ifaceName": "cali1", "mac": "aa:bb:cc:00:11:22",
        "ipv4Nets": ["10.65.3.70/32"], "ipv6Nets": ["fd65::70/128"],
        "ifIndex": 7, "containerID": "9f3c",
    });
    assert_eq!(world.read(WEB), reported);
    // Its interface was created again, and it was up again before the next check.
    world.link = Some(9);
    world.reported.clear();
    world.update(false);
    assert_eq!(world.read(WEB)["ifIndex"], 9);
    world.endpoint("web-0", EndpointState::Down, Some("no carrier"));
    world.update(false);
    assert!(world.files().is_empty());
    world.endpoint("web-0", EndpointState::Up, None);
    world.update(true);
    world.placements.clear();
    world.update(true);
    assert!(world.files().is_empty());
}

#[test]
fn a_refusal_has_its_reason_beside() {
    let mut world = World::new();
    world.endpoint("web-0", EndpointState::Error, Some("it is taken"));
    world.update(false);
    assert_eq!(world.files(), [WEB_ERROR]);
    assert_eq!(world.read(WEB_ERROR)["reason"], "it is taken");
    world.endpoint("web-0", EndpointState::Error, Some("otherwise"));
    world.update(false);
    assert_eq!(world.read(WEB_ERROR)["reason"], "otherwise");
    world.endpoint("web-0", EndpointState::Up, None);
    world.update(false);
    assert_eq!(world.files(), [WEB]);
    assert_eq!(world.read(WEB).get("reason"), None);
}

#[test]
fn stale_object_of_an_earlier_run_is_removed() {
    let mut world = World::new();
    let gone = "endpoint-status/k8s prod%2Fgone eth0";
    let up = "endpoint-status/k8s prod%2Fup eth0";
    for left in [WEB, WEB_ERROR, gone, up] {
        world.left(left);
    }
    world.endpoint("web-0", EndpointState::Down, Some("not yet"));
    world.endpoint("up", EndpointState::Up, None);
    world.update(false);
    assert_eq!(world.files(), [up, WEB]);
    assert_eq!(world.read(up)["ifaceName"], "cali1", "written again");
    world.update(true);
    assert_eq!(world.files(), [up]);
}

#[test]
fn failed_write_is_retried_and_blocks_no_other() {
    let mut world = World::new();
    // A directory in place of a file.
    let stone = world.directory.path().join(WEB);
    fs::create_dir_all(&stone).unwrap();
    fs::set_permissions(&stone, fs::Permissions::from_mode(0o700)).unwrap();
    world.endpoint("web-0", EndpointState::Up, None);
    world.endpoint("web-1", EndpointState::Up, None);
    world.update(true);
    let problem = world.files.problem().unwrap();
    assert!(problem.contains("web-0"), "{problem}");
    let other = "endpoint-status/k8s prod%2Fweb-1 eth0";
    assert_eq!(world.read(other)["ifaceName"], "cali1");
    fs::remove_dir(&stone).unwrap();
    world.update(true);
    assert!(world.files.problem().is_some(), "not yet");
    world.now = world.files.poll_timeout().unwrap();
    world.update(true);
    assert_eq!(world.files.problem(), None);
    assert_eq!(world.files(), [WEB, other]);
}

/// As a cleanup after Calico's agent would do.
#[test]
fn a_directory_that_is_taken_away_is_filled_again() {
    let mut world = World::new();
    world.endpoint("web-0", EndpointState::Up, None);
    world.update(true);
    fs::remove_dir_all(world.directory.path().join(EndpointFile::UP)).unwrap();
    world.endpoint("web-1", EndpointState::Up, None);
    world.update(true);
    assert!(world.files.problem().is_some());
    world.now = world.files.poll_timeout().unwrap();
    world.update(true);
    assert_eq!(world.files.problem(), None);
    assert_eq!(
        world.files(),
        [WEB, "endpoint-status/k8s prod%2Fweb-1 eth0"]
    );
}

#[test]
fn a_name_is_one_of_a_file_in_the_directory_whatever_it_is() {
    let id = |part: &str| EndpointId {
        orchestrator: part.into(),
        workload: part.into(),
        endpoint: part.into(),
    };
    for part in ["", ".", "..", "/", "../../etc/x", "\0"] {
        let name = name(&id(part));
        let path = Path::new("/d").join(&name);
        assert_eq!(path.parent(), Some(Path::new("/d")), "{name}");
        assert!(path.file_name().is_some() && !name.contains('\0'), "{name}");
    }
}

#[test]
fn files_move_with_their_directory() {
    let mut world = World::new();
    world.endpoint("web-0", EndpointState::Up, None);
    world.update(true);
    let first = world.directory.path().join(WEB);
    assert!(first.is_file());
    let other = tempfile::tempdir().unwrap();
    let second = other.path().join(WEB);
    let mut follow = |prefix: Option<&Path>| {
        world.files.follow(prefix);
        world.update(true);
        (first.is_file(), second.is_file())
    };
    assert_eq!(follow(Some(other.path())), (false, true));
    assert_eq!(follow(None), (false, false));
    assert_eq!(follow(Some(other.path())), (false, true));
}
