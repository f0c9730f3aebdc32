//! The memory limit of this process's control group.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where the kernel's control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";

/// A limit of version 1 from which on there is none: the kernel has rounded the greatest number.
const NO_LIMIT: u64 = 1 << 62;

/// Returns the octets that this process's control group may take, with those that it is in; `None`
/// without a limit.
pub fn memory_max() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_max_of(&groups, Path::new(MOUNTED))
}

/// Returns the smallest limit along the path of a process's groups, which are written as in
/// `/proc/PID/cgroup`: of version 2, or of version 1 where the memory controller is there.
fn memory_max_of(groups: &str, mounted: &Path) -> Option<u64> {
    let lines = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let (mut unified, mut first) = (None, None);
    for (hierarchy, controllers, path) in lines {
        if hierarchy == "0" && controllers.is_empty() {
            unified = Some(path);
        } else if controllers.split(',').any(|of| of == "memory") {
            first = Some(path);
        }
    }
    let unified = unified.and_then(|path| {
        let hybrid = mounted.join("unified");
        let smallest = |root: &Path| smallest(root, path, "memory.max");
        smallest(mounted).into_iter().chain(smallest(&hybrid)).min()
    });
    unified.or_else(|| smallest(&mounted.join("memory"), first?, "memory.limit_in_bytes"))
}

/// Returns the smallest number in this file of a group or of one that it is in.
fn smallest(root: &Path, group: &str, file: &str) -> Option<u64> {
    // A group outside the process's namespace begins with `..`: only the root is visible.
    let parts = Path::new(group).components().collect::<Vec<_>>();
    let is_visible = !parts.contains(&Component::ParentDir);
    let below: PathBuf = (parts.into_iter().filter(|_| is_visible))
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let limits = below.ancestors().filter_map(|group| {
        let text = fs::read_to_string(root.join(group).join(file)).ok()?;
        text.trim().parse().ok() // `max` is no limit.
    });
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Returns a tree with these files.
    fn tree(files: &[(&str, &str)]) -> TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, content).expect("a file");
        }
        directory
    }

    fn max(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        memory_max_of(groups, tree(files).path())
    }

    const UNIT: &str = "0::/system.slice/cambric.service\n";

    #[test]
    fn limit_of_a_unit_is_read() {
        let own = ("system.slice/cambric.service/memory.max", "3221225472\n");
        assert_eq!(max(UNIT, &[own]), Some(3_221_225_472));
        let unlimited = ("system.slice/cambric.service/memory.max", "max\n");
        assert_eq!(max(UNIT, &[unlimited]), None);
        assert_eq!(max(UNIT, &[]), None);
    }

    #[test]
    fn smallest_limit_along_the_path_counts() {
        let files = [
            ("system.slice/cambric.service/memory.max", "4000\n"),
            ("system.slice/memory.max", "3000\n"),
            ("memory.max", "max\n"),
            ("system.slice/other.service/memory.max", "1\n"),
        ];
        assert_eq!(max(UNIT, &files), Some(3000));
    }

    #[test]
    fn container_reads_the_root_of_its_tree() {
        let root = [
            ("memory.max", "5000\n"),
            ("memory/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(max("0::/\n", &root), Some(5000));
        assert_eq!(max("0::/../other\n", &root), Some(5000));
        // The path is the host's, and the tree is the container's.
        assert_eq!(max("0::/kubepods/pod1/c1\n", &root), Some(5000));
    }

    #[test]
    fn limit_of_version_1_is_read_where_version_2_has_none() {
        let groups = "7:cpu,cpuacct:/other\n5:memory:/docker/c1\n0::/docker/c1\n";
        let own = ("memory/docker/c1/memory.limit_in_bytes", "6000\n");
        let root = ("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(max(groups, &[own, root]), Some(6000));
        assert_eq!(max(groups, &[root]), None, "no limit");
        let hybrid = ("unified/docker/c1/memory.max", "7000\n");
        assert_eq!(max(groups, &[own, hybrid]), Some(7000));
    }

    #[test]
    fn unreadable_lines_are_skipped() {
        let own = ("memory.max", "12\n");
        assert_eq!(max("\nnonsense\n0:\n1:2\n0::/\n", &[own]), Some(12));
        assert_eq!(max("nonsense", &[own]), None);
        assert_eq!(max("0::/\n", &[("memory.max", "many\n")]), None);
        assert_eq!(max("0::/\n", &[("memory.max", "-1\n")]), None);
    }
}
